import assert from 'node:assert/strict';
import { once } from 'node:events';
import amqp from 'amqplib';
import { Inbox, Relay, numbers, patience, scenario, soon, text, unique, until } from './broker.js';

scenario('a lost connection gives back what was not settled', async (s) => {
  const relay = await Relay.start(s);
  const fragile = await s.connect({}, relay.uri);
  const channel = await s.another(fragile);
  const queue = await s.durable();
  await s.fill(queue, ...numbers(100));
  const inbox = await s.consume(queue, {}, channel);
  const messages = await inbox.take(100);
  channel.ack(messages[49], true);
  await channel.checkExchange('amq.direct');
  const closed = once(channel, 'close', { signal: AbortSignal.timeout(patience) });
  relay.cut();
  await closed;
  await until('the other half is back', async () => (await s.depth(queue)) === 50);
  assert.equal((await s.take(queue)).fields.redelivered, true);
  s.channel.nackAll(true);
  assert.deepEqual(await s.drain(queue), numbers(100).slice(50));
});

scenario('an exclusive queue is gone after a lost connection', async (s) => {
  const relay = await Relay.start(s);
  const owner = await s.another(await s.connect({}, relay.uri));
  const queue = unique('queue');
  await owner.assertQueue(queue, { exclusive: true, durable: false });
  relay.cut();
  await until('the queue is gone', async () => {
    const asking = await s.another();
    return asking.checkQueue(queue).then(() => false, (error) => error.code === 404);
  });
});

scenario('the recovery of the client restores a consumer', async (s) => {
  const relay = await Relay.start(s);
  const [exchange, queue] = [unique('exchange'), unique('queue')];
  const inbox = new Inbox();
  const setups = new Inbox();
  const connection = await soon('a connection', amqp.connect(relay.uri, {
    recovery: {
      initialDelay: 20,
      maxDelay: 100,
      setup: async (model) => {
        const channel = await model.createChannel();
        channel.on('error', () => {});
        await channel.assertExchange(exchange, 'topic', { durable: false, autoDelete: true });
        // The broker may not have noticed yet that the queue's connection is lost: then the client tries again.
        await channel.assertQueue(queue, { exclusive: true, durable: false });
        await channel.bindQueue(queue, exchange, 'a.#');
        await channel.consume(queue, (message) => inbox.put(message), { noAck: true });
        setups.put(channel);
      },
    },
  }));
  connection.on('error', () => {});
  s.after(() => connection.close());
  for (const body of numbers(3)) {
    await setups.next();
    await s.send(exchange, 'a.b', [body]);
    assert.equal(text(await inbox.next()), body);
    relay.cut();
  }
  await setups.next();
  const publishing = await connection.createConfirmChannel();
  publishing.publish(exchange, 'a.b', Buffer.from('own'));
  await soon('confirms', publishing.waitForConfirms());
  assert.equal(text(await inbox.next()), 'own');
});

scenario('what was published before a connection is lost and confirmed stays', async (s) => {
  const relay = await Relay.start(s);
  const channel = await s.confirming(await s.connect({}, relay.uri));
  const queue = await s.durable();
  const confirmed = new Set();
  for (const body of numbers(1000)) {
    channel.sendToQueue(queue, Buffer.from(body), { persistent: true }, (error) => {
      if (!error) confirmed.add(body);
      if (confirmed.size === 100) relay.cut();
    });
  }
  await assert.rejects(soon('an end', channel.waitForConfirms().then(() => {
    // Every confirm may have come in one piece before the cut.
    throw new Error(confirmed.size === 1000 ? 'all confirmed' : 'confirms are missing');
  })), /channel closed|all confirmed/);
  const kept = new Set(await s.drain(queue));
  for (const body of confirmed) assert.ok(kept.has(body), `${body} was confirmed and is lost`);
});
