"""Length limits and priorities of a queue."""

import pytest

import broker
from deliveries import Inbox, arrived, bodies, depth, own_queue, round_trip, send, take, take_all


@pytest.mark.parametrize("limit", [0, 1, 2, 3])
def test_a_length_limit_drops_the_oldest(channel, limit):
    queue = own_queue(channel, max_length=limit)
    send(channel, queue, *range(5))
    assert bodies(take_all(channel, queue)) == [str(number) for number in range(5 - limit, 5)]


def test_only_ready_messages_count(channel):
    queue = own_queue(channel, max_length=2)
    send(channel, queue, 1, 2)
    held = [take(channel, queue, auto_ack=False) for _ in range(2)]
    send(channel, queue, 3, 4)
    assert depth(channel, queue) == 2
    channel.basic_ack(held[1].method.delivery_tag, multiple=True)
    assert bodies(take_all(channel, queue)) == ["3", "4"]


def test_a_limit_in_bytes_counts_bodies(channel):
    queue = own_queue(channel, max_length_bytes=10)
    send(channel, queue, "aaaaa", "bbbbb", "cc", headers={"not": "counted"})
    assert bodies(take_all(channel, queue)) == ["bbbbb", "cc"]
    send(channel, queue, "larger than all of it")
    assert depth(channel, queue) == 0


def test_both_limits_hold(channel):
    queue = own_queue(channel, max_length=3, max_length_bytes=10)
    send(channel, queue, "a", "b", "c", "d")
    assert depth(channel, queue) == 3
    send(channel, queue, "eeeeeeeee")
    assert bodies(take_all(channel, queue)) == ["d", "eeeeeeeee"]


def test_requeueing_into_a_full_queue_drops_from_the_head(channel):
    queue = own_queue(channel, max_length=1)
    send(channel, queue, "old")
    held = take(channel, queue, auto_ack=False)
    send(channel, queue, "new")
    channel.basic_nack(held.method.delivery_tag, requeue=True)
    round_trip(channel)
    assert bodies([arrived(channel, queue)]) == ["new"]
    assert take(channel, queue) is None


def test_higher_priorities_come_first_and_equals_in_order(channel):
    queue = own_queue(channel, max_priority=10)
    for priority in (1, 9, None, 5, 9, 1):
        properties = {} if priority is None else {"priority": priority}
        send(channel, queue, f"{priority}-a", f"{priority}-b", **properties)
    assert bodies(take_all(channel, queue)) == [
        "9-a", "9-b", "9-a", "9-b", "5-a", "5-b", "1-a", "1-b", "1-a", "1-b", "None-a", "None-b"]


def test_a_priority_above_the_maximum_counts_as_the_maximum(channel):
    queue = own_queue(channel, max_priority=3)
    send(channel, queue, "three", priority=3)
    send(channel, queue, "two hundred", priority=200)
    message, other = take_all(channel, queue)
    assert (message.body, other.body, other.properties.priority) == (b"three", b"two hundred", 200)


def test_a_queue_without_priorities_ignores_them(channel):
    queue = own_queue(channel)
    send(channel, queue, "low", priority=0)
    send(channel, queue, "high", priority=9)
    assert bodies(take_all(channel, queue)) == ["low", "high"]


def test_all_256_levels(channel):
    queue = own_queue(channel, max_priority=255)
    for priority in range(0, 256, 15):
        send(channel, queue, priority, priority=priority)
    assert bodies(take_all(channel, queue)) == [str(priority) for priority in range(255, -1, -15)]


def test_a_requeued_message_keeps_its_priority(channel):
    queue = own_queue(channel, max_priority=5)
    send(channel, queue, "high", priority=5)
    held = take(channel, queue, auto_ack=False)
    send(channel, queue, "low", priority=1)
    channel.basic_nack(held.method.delivery_tag, requeue=True)
    round_trip(channel)
    assert bodies([arrived(channel, queue), arrived(channel, queue)]) == ["high", "low"]


def test_a_length_limit_drops_from_the_head_also_where_that_is_the_highest_priority(channel):
    queue = own_queue(channel, max_priority=5, max_length=2)
    send(channel, queue, "high", priority=5)
    send(channel, queue, "low 1", "low 2", "low 3", priority=1)
    assert bodies(take_all(channel, queue)) == ["low 2", "low 3"]


def test_a_waiting_consumer_gets_the_highest_next(channel):
    queue = own_queue(channel, max_priority=5)
    channel.basic_qos(prefetch_count=1)
    inbox = Inbox(channel, queue)
    send(channel, queue, "first", priority=0)
    tag = inbox.wait(1)[0].method.delivery_tag
    send(channel, queue, "low", priority=1)
    send(channel, queue, "high", priority=4)
    for expected in ("high", "low"):
        channel.basic_ack(tag)
        last = inbox.wait(len(inbox.messages) + 1)[-1]
        assert last.body.decode() == expected
        tag = last.method.delivery_tag


def test_messages_of_each_priority_expire(channel):
    queue = own_queue(channel, max_priority=3)
    send(channel, queue, "goes", priority=3, expiration="300")
    send(channel, queue, "stays", priority=1)
    broker.until(lambda: depth(channel, queue) == 1, pause=channel.connection.sleep)
    assert bodies(take_all(channel, queue)) == ["stays"]
