"""The tx class: publishes and settlements that count all at once or not at all."""

import pika
import pytest

from deliveries import arrived, bodies, channel_closed, depth, own_queue, round_trip, send, take, take_all


@pytest.fixture
def transaction(connection):
    """A channel in tx mode."""
    channel = connection.channel()
    channel.tx_select()
    return channel


@pytest.fixture
def queue(channel):
    """A queue declared by another channel of the same connection."""
    return own_queue(channel)


def test_publishes_appear_with_the_commit(channel, transaction, queue):
    for body in (b"a", b"b"):
        transaction.basic_publish("", queue, body)
    round_trip(transaction)
    assert depth(channel, queue) == 0
    transaction.tx_commit()
    assert bodies(take_all(channel, queue)) == ["a", "b"]


def test_rollback_drops_publishes(channel, transaction, queue):
    transaction.basic_publish("", queue, b"never")
    transaction.tx_rollback()
    transaction.basic_publish("", queue, b"kept")
    transaction.tx_commit()
    assert bodies(take_all(channel, queue)) == ["kept"]


def test_closing_the_channel_rolls_back(channel, transaction, queue):
    transaction.basic_publish("", queue, b"never")
    transaction.close()
    assert depth(channel, queue) == 0


def test_acks_count_with_the_commit(channel, transaction, queue):
    send(channel, queue, 1, 2)
    transaction.basic_ack(take(transaction, queue, auto_ack=False).method.delivery_tag)
    transaction.tx_commit()
    transaction.basic_ack(take(transaction, queue, auto_ack=False).method.delivery_tag)
    transaction.close()
    assert bodies(take_all(channel, queue)) == ["2"]


def test_rollback_leaves_messages_unsettled_and_settleable(channel, transaction, queue):
    send(channel, queue, 1)
    tag = take(transaction, queue, auto_ack=False).method.delivery_tag
    transaction.basic_ack(tag)
    transaction.tx_rollback()
    assert depth(channel, queue) == 0
    transaction.basic_ack(tag)
    transaction.tx_commit()
    transaction.close()
    assert depth(channel, queue) == 0


@pytest.mark.parametrize("settle", ["basic_reject", "basic_nack"])
def test_requeues_count_with_the_commit(channel, transaction, queue, settle):
    send(channel, queue, 1)
    tag = take(transaction, queue, auto_ack=False).method.delivery_tag
    getattr(transaction, settle)(tag, requeue=True)
    round_trip(transaction)
    assert depth(channel, queue) == 0
    transaction.tx_commit()
    assert arrived(channel, queue).method.redelivered


def test_an_unknown_tag_is_refused_at_once(transaction):
    with channel_closed(406, "unknown delivery tag"):
        transaction.basic_ack(77)
        round_trip(transaction)


def test_a_missing_exchange_closes_the_channel_before_the_commit(transaction):
    with channel_closed(404, "no exchange"):
        transaction.basic_publish("no such exchange", "x", b"")
        transaction.tx_commit()


@pytest.mark.parametrize("end", ["tx_commit", "tx_rollback"])
def test_without_select_there_is_nothing_to_end(channel, end):
    with channel_closed(406, "not transactional"):
        getattr(channel, end)()


def test_tx_and_confirm_exclude_each_other(connection, transaction):
    with channel_closed(406, "tx to confirm"):
        transaction.confirm_delivery()
    confirming = connection.channel()
    confirming.confirm_delivery()
    with channel_closed(406, "confirm to tx"):
        confirming.tx_select()


def test_select_may_be_repeated(transaction):
    transaction.tx_select()
    transaction.tx_commit()


def test_a_mandatory_return_comes_with_the_commit(transaction):
    returned = []
    transaction.add_on_return_callback(lambda *arguments: returned.append(arguments[1].reply_code))
    transaction.basic_publish("", "no such queue", b"x", mandatory=True)
    round_trip(transaction)
    transaction.connection.process_data_events(0)
    assert not returned
    transaction.tx_commit()
    transaction.connection.process_data_events(0)
    assert returned == [312]


def test_a_large_transaction_over_two_queues(channel, transaction):
    one, two = own_queue(channel), own_queue(channel)
    for number in range(500):
        transaction.basic_publish("", one if number % 2 else two, str(number).encode(), pika.BasicProperties(delivery_mode=2))
    transaction.tx_commit()
    assert (depth(channel, one), depth(channel, two)) == (250, 250)
