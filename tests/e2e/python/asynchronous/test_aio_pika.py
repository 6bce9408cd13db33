"""aio-pika as asyncio services use it: robust connections, iterators, process contexts, exchanges as objects."""

import asyncio
import contextlib
import datetime
import decimal

import aio_pika
import aiormq
import pytest
from aio_pika import DeliveryMode, ExchangeType, Message

import broker


@contextlib.asynccontextmanager
async def session(**options):
    """A connection and a channel that close with the block."""
    connection = await aio_pika.connect(broker.URI, **options)
    async with connection:
        yield connection, await connection.channel()


async def own_queue(channel, **arguments):
    """A fresh exclusive queue with these x-arguments."""
    given = {"x-" + name.replace("_", "-"): value for name, value in arguments.items()}
    return await channel.declare_queue(exclusive=True, arguments=given)


async def send(channel, queue, *bodies, **properties):
    """Publishes to a queue by name, each one confirmed."""
    for body in bodies:
        data = body if isinstance(body, bytes) else str(body).encode()
        await channel.default_exchange.publish(Message(data, **properties), queue.name)


async def collect(queue, count, **options):
    """The next messages of a queue by its iterator, unsettled unless told otherwise."""
    messages = []
    async with queue.iterator(timeout=broker.PATIENCE, **options) as incoming:
        async for message in incoming:
            messages.append(message)
            if len(messages) == count:
                break
    return messages


async def eventually(question):
    """Asks until the answer is true."""
    async with asyncio.timeout(broker.PATIENCE):
        while not (answer := await question()):
            await asyncio.sleep(0.02)
        return answer


async def ignore(message):
    """A consumer that settles and forgets."""
    await message.ack()


async def taken(queue, **options):
    """One message by basic.get as soon as there is one."""
    return await eventually(lambda: queue.get(fail=False, **options))


async def test_publish_confirm_consume_acknowledge():
    async with session() as (_connection, channel):
        queue = await own_queue(channel)
        await send(channel, queue, *range(10))
        got = []
        async with queue.iterator(timeout=broker.PATIENCE) as incoming:
            async for message in incoming:
                async with message.process():
                    got.append(int(message.body))
                if len(got) == 10:
                    break
        assert got == list(range(10))
        assert (await channel.declare_queue(queue.name, passive=True)).declaration_result.message_count == 0


async def test_many_publishes_confirmed_at_once():
    async with session() as (_connection, channel):
        queue = await own_queue(channel)
        confirmations = await asyncio.gather(*[
            channel.default_exchange.publish(Message(b"%d" % number), queue.name) for number in range(500)])
        assert all(isinstance(confirmation, aiormq.spec.Basic.Ack) for confirmation in confirmations)
        messages = await collect(queue, 500, no_ack=True)
        assert [int(message.body) for message in messages] == list(range(500))


async def test_a_process_context_requeues_when_it_fails():
    async with session() as (_connection, channel):
        queue = await own_queue(channel)
        await send(channel, queue, "x")
        message = await taken(queue)
        with pytest.raises(ValueError):
            async with message.process(requeue=True):
                raise ValueError
        again = await taken(queue)
        assert again.redelivered and again.body == b"x"
        await again.ack()


@pytest.mark.parametrize("settle", ["reject", "nack"])
async def test_reject_and_nack_requeue_or_drop(settle):
    async with session() as (_connection, channel):
        queue = await own_queue(channel)
        await send(channel, queue, "a")
        await getattr(await taken(queue), settle)(requeue=True)
        message = await taken(queue)
        assert message.redelivered
        await getattr(message, settle)(requeue=False)
        assert await queue.get(fail=False) is None


async def test_an_empty_queue_is_empty():
    async with session() as (_connection, channel):
        queue = await own_queue(channel)
        with pytest.raises(aio_pika.exceptions.QueueEmpty):
            await queue.get()


@pytest.mark.parametrize("kind", [ExchangeType.DIRECT, ExchangeType.FANOUT, ExchangeType.TOPIC, ExchangeType.HEADERS])
async def test_every_exchange_type_routes(kind):
    async with session() as (_connection, channel):
        exchange = await channel.declare_exchange(broker.unique("exchange"), kind, auto_delete=True)
        right, wrong = await own_queue(channel), await own_queue(channel)
        match = {"arguments": {"x-match": "all", "colour": "red"}}, {"arguments": {"x-match": "all", "colour": "blue"}}
        keys = {"direct": ("a.b", "other"), "fanout": ("", ""), "topic": ("a.*", "b.#"), "headers": ("", "")}[kind.value]
        for queue, key, options in zip((right, wrong), keys, match if kind is ExchangeType.HEADERS else ({}, {})):
            await queue.bind(exchange, key, **options)
        await exchange.publish(Message(b"x", headers={"colour": "red"}), "a.b")
        assert (await taken(right)).routing_key == "a.b"
        assert bool(await wrong.get(fail=False)) == (kind is ExchangeType.FANOUT)


async def test_exchange_to_exchange_and_alternate_exchange():
    async with session() as (_connection, channel):
        alternate = await channel.declare_exchange(broker.unique("exchange"), ExchangeType.FANOUT, auto_delete=True)
        outer = await channel.declare_exchange(broker.unique("exchange"), ExchangeType.TOPIC, auto_delete=True,
                                               arguments={"alternate-exchange": alternate.name})
        inner = await channel.declare_exchange(broker.unique("exchange"), ExchangeType.FANOUT, auto_delete=True, internal=True)
        await inner.bind(outer, "in.#")
        through, spilled = await own_queue(channel), await own_queue(channel)
        await through.bind(inner)
        await spilled.bind(alternate)
        await outer.publish(Message(b"through"), "in.side")
        await outer.publish(Message(b"spilled"), "out.side")
        assert (await taken(through)).body == b"through"
        assert (await taken(spilled)).body == b"spilled"
        await inner.unbind(outer, "in.#")


async def test_an_unroutable_mandatory_message_is_a_delivery_error():
    async with session() as (connection, _channel):
        channel = await connection.channel(on_return_raises=True)
        with pytest.raises(aio_pika.exceptions.DeliveryError) as caught:
            await channel.default_exchange.publish(Message(b"x", message_id="m"), broker.unique("nowhere"), mandatory=True)
        assert caught.value.message.delivery.reply_code == 312
        assert caught.value.message.header.properties.message_id == "m"
        assert await channel.default_exchange.publish(Message(b"x"), broker.unique("nowhere"), mandatory=False)


async def test_a_full_queue_refuses_a_publish():
    async with session() as (_connection, channel):
        queue = await own_queue(channel, max_length=1, overflow="reject-publish")
        await send(channel, queue, 1)
        with pytest.raises(aio_pika.exceptions.DeliveryError):
            await send(channel, queue, 2)


@pytest.mark.parametrize("error, fault", [
    (aio_pika.exceptions.ChannelNotFoundEntity, lambda channel: channel.declare_queue(broker.unique(), passive=True)),
    (aio_pika.exceptions.ChannelNotFoundEntity, lambda channel: channel.declare_exchange(broker.unique(), passive=True)),
    (aiormq.exceptions.ChannelAccessRefused, lambda channel: channel.declare_queue("amq." + broker.unique())),
    (aio_pika.exceptions.ChannelPreconditionFailed, lambda channel: channel.declare_exchange("amq.direct", ExchangeType.FANOUT)),
    (aiormq.exceptions.ChannelAccessRefused, lambda channel: channel.exchange_delete("amq.direct")),
], ids=["queue 404", "exchange 404", "queue 403", "exchange 406", "delete 403"])
async def test_errors_have_their_exceptions_and_leave_the_connection_open(error, fault):
    async with session() as (connection, channel):
        with pytest.raises(error):
            await fault(channel)
        assert channel.is_closed and not connection.is_closed
        assert await own_queue(await connection.channel())


async def test_an_exclusive_queue_of_another_connection_is_locked():
    async with session() as (_one, channel), session() as (_two, other):
        queue = await own_queue(channel)
        with pytest.raises(aiormq.exceptions.ChannelLockedResource):
            await other.declare_queue(queue.name, passive=True)


async def test_wrong_password_and_unknown_vhost():
    target = broker.parameters()
    with pytest.raises(aio_pika.exceptions.ProbableAuthenticationError):
        await aio_pika.connect(host=target.host, port=target.port, login=broker.user(), password="not the password")
    with pytest.raises(aio_pika.exceptions.AMQPError):
        await aio_pika.connect(host=target.host, port=target.port, login=broker.user(), password=broker.password(),
                               virtualhost=broker.unique("vhost"))


async def test_headers_of_every_type_round_trip():
    headers = {
        "bool": True, "int": 7, "negative": -70_000, "long": 2**40, "float": 1.5, "text": "☃", "bytes": bytearray(b"\x00\xff"),
        "none": None, "list": [1, "a", [2.5, {"b": None}]], "table": {"x": {"y": [True]}},
        "decimal": decimal.Decimal("3.14"), "time": datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.timezone.utc),
    }
    async with session() as (_connection, channel):
        queue = await own_queue(channel)
        await send(channel, queue, "x", headers=headers)
        got = (await taken(queue)).headers
        assert got == headers


async def test_all_properties_round_trip():
    given = dict(
        content_type="application/json", content_encoding="utf-8", priority=4, correlation_id="c", reply_to="r",
        message_id="m", type="t", app_id="a", user_id=broker.user(), delivery_mode=DeliveryMode.PERSISTENT,
        timestamp=datetime.datetime(2024, 2, 29, tzinfo=datetime.timezone.utc))
    async with session() as (_connection, channel):
        queue = await own_queue(channel)
        await send(channel, queue, "x", expiration=60, **given)
        message = await taken(queue)
        assert {name: getattr(message, name) for name in given} == given
        assert message.expiration == 60


@pytest.mark.parametrize("size", [0, 131_064, 8_000_000])
async def test_bodies_of_any_size_round_trip(size):
    async with session() as (_connection, channel):
        queue = await own_queue(channel)
        body = (bytes(range(251)) * (size // 251 + 1))[:size]
        await send(channel, queue, body)
        assert (await taken(queue)).body == body


async def test_expired_and_rejected_messages_are_dead_lettered():
    async with session() as (_connection, channel):
        exchange = await channel.declare_exchange(broker.unique("exchange"), ExchangeType.FANOUT, auto_delete=True)
        grave = await own_queue(channel)
        await grave.bind(exchange)
        queue = await own_queue(channel, dead_letter_exchange=exchange.name)
        await send(channel, queue, "expires", expiration=0.05)
        expired = await taken(grave)
        death, = expired.headers["x-death"]
        assert (death["reason"], death["queue"], death["count"], death["original-expiration"]) == ("expired", queue.name, 1, "50")
        await send(channel, queue, "rejected")
        await (await taken(queue)).reject()
        assert (await taken(grave)).headers["x-first-death-reason"] == "rejected"


async def test_priorities_order_a_queue():
    async with session() as (_connection, channel):
        queue = await own_queue(channel, max_priority=5)
        for priority in (1, 5, 3):
            await send(channel, queue, priority, priority=priority)
        assert [int((await taken(queue)).body) for _ in range(3)] == [5, 3, 1]


@pytest.mark.parametrize("shared", [False, True])
async def test_prefetch_limits_what_is_unsettled(shared):
    async with session() as (connection, channel):
        await channel.set_qos(prefetch_count=2, global_=shared)
        queue = await own_queue(channel)
        await send(channel, queue, *range(6))
        inbox = asyncio.Queue()
        await queue.consume(inbox.put)
        first, second = await inbox.get(), await inbox.get()
        assert (await channel.declare_queue(queue.name, passive=True)).declaration_result.message_count == 4
        assert inbox.empty()
        await second.ack(multiple=True)
        assert [int((await inbox.get()).body) for _ in range(2)] == [2, 3]
        assert first.delivery_tag == 1


async def test_a_transaction_commits_or_rolls_back():
    async with session() as (connection, watching):
        queue = await own_queue(watching)
        channel = await connection.channel(publisher_confirms=False)
        async with channel.transaction():
            await channel.default_exchange.publish(Message(b"kept"), queue.name)
            assert await queue.get(fail=False) is None
        with pytest.raises(ValueError):
            async with channel.transaction():
                await channel.default_exchange.publish(Message(b"dropped"), queue.name)
                raise ValueError
        assert (await taken(queue)).body == b"kept"
        assert await queue.get(fail=False) is None


async def test_the_broker_cancels_consumers_of_a_deleted_queue():
    async with session() as (connection, channel):
        queue = await own_queue(channel)
        underlay = await channel.get_underlay_channel()
        tag = await queue.consume(ignore)
        assert tag in underlay.consumers
        await (await connection.channel()).queue_delete(queue.name)
        await eventually(lambda: asyncio.sleep(0, tag not in underlay.consumers))


async def test_an_auto_delete_queue_goes_with_its_consumer():
    async with session() as (connection, channel):
        queue = await channel.declare_queue(broker.unique(), auto_delete=True)
        tag = await queue.consume(ignore)
        await queue.cancel(tag)
        with pytest.raises(aio_pika.exceptions.ChannelNotFoundEntity):
            await channel.declare_queue(queue.name, passive=True)


async def test_a_hundred_channels_publish_at_the_same_time():
    async with session() as (connection, channel):
        queue = await own_queue(channel)

        async def publish(number):
            async with connection.channel() as own:
                await send(own, queue, number)

        await asyncio.gather(*[publish(number) for number in range(100)])
        messages = await collect(queue, 100, no_ack=True)
        assert sorted(int(message.body) for message in messages) == list(range(100))


async def test_a_quiet_connection_with_one_second_heartbeats_stays_open():
    async with session(heartbeat=1) as (connection, channel):
        await asyncio.sleep(4)
        queue = await own_queue(channel)
        await send(channel, queue, "alive")
        assert (await taken(queue)).body == b"alive"


async def test_the_secret_may_be_renewed():
    async with session() as (connection, _channel):
        await connection.update_secret(broker.password(), reason="rotation")


async def test_flow_on_is_acknowledged():
    async with session() as (_connection, channel):
        assert (await channel.flow(True)).active


async def test_a_robust_connection_restores_queue_binding_and_consumer(proxy):
    target = broker.parameters()
    connection = await aio_pika.connect_robust(
        host="127.0.0.1", port=proxy.port, login=broker.user(), password=broker.password(),
        virtualhost=target.virtual_host, reconnect_interval=0.1)
    async with connection:
        channel = await connection.channel()
        exchange = await channel.declare_exchange(broker.unique("exchange"), ExchangeType.DIRECT, auto_delete=True)
        queue = await channel.declare_queue(broker.unique(), auto_delete=True)
        await queue.bind(exchange, "k")
        inbox = asyncio.Queue()
        await queue.consume(inbox.put, no_ack=True)
        await exchange.publish(Message(b"before"), "k")
        assert (await inbox.get()).body == b"before"
        restored = asyncio.Event()
        connection.reconnect_callbacks.add(lambda _connection: restored.set())
        proxy.cut()
        await asyncio.wait_for(restored.wait(), broker.PATIENCE)
        confirmation = await exchange.publish(Message(b"after"), "k")
        assert isinstance(confirmation, aiormq.spec.Basic.Ack), "the binding was not restored"
        assert (await asyncio.wait_for(inbox.get(), broker.PATIENCE)).body == b"after"


async def test_requests_and_replies_by_direct_reply_to():
    async with session() as (connection, channel), session() as (_other, serving):
        asked = await own_queue(serving)

        async def answer(message):
            async with message.process():
                await serving.default_exchange.publish(
                    Message(message.body.upper(), correlation_id=message.correlation_id), message.reply_to)

        await asked.consume(answer)
        replies = asyncio.Queue()
        reply_to = await channel.get_queue("amq.rabbitmq.reply-to", ensure=False)
        await reply_to.consume(replies.put, no_ack=True)
        await channel.default_exchange.publish(
            Message(b"hello", reply_to="amq.rabbitmq.reply-to", correlation_id="1"), asked.name)
        reply = await asyncio.wait_for(replies.get(), broker.PATIENCE)
        assert (reply.body, reply.correlation_id) == (b"HELLO", "1")


async def test_the_rpc_pattern_of_the_library():
    from aio_pika.patterns import RPC
    async with session() as (_connection, channel):
        rpc = await RPC.create(channel)
        name = broker.unique("rpc")

        async def multiply(*, x, y):
            return x * y

        await rpc.register(name, multiply, auto_delete=True)
        assert await rpc.call(name, kwargs={"x": 6, "y": 7}) == 42
        await rpc.unregister(multiply)
