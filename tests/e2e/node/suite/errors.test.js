import assert from 'node:assert/strict';
import { closes, numbers, refuses, scenario, soon, unique } from './broker.js';

const missing = unique('missing');

// Name: [code, words, class, method, what is asked for on a channel that knows an exclusive transient queue].
const requests = {
  'get without a queue': [404, /NOT_FOUND/, 60, 70, (c) => c.get('')],
  'get of a missing queue': [404, /no queue/, 60, 70, (c) => c.get(missing)],
  'check of a missing queue': [404, /no queue/, 50, 10, (c) => c.checkQueue(missing)],
  'check of a missing exchange': [404, /no exchange/, 40, 10, (c) => c.checkExchange(missing)],
  'consume from a missing queue': [404, /no queue/, 60, 20, (c) => c.consume(missing, () => {})],
  'bind of a missing queue': [404, /no queue/, 50, 20, (c) => c.bindQueue(missing, 'amq.direct', 'k')],
  'bind to a missing exchange': [404, /no exchange/, 50, 20, (c, queue) => c.bindQueue(queue, missing, 'k')],
  'bind of a missing exchange': [404, /no exchange/, 40, 30, (c) => c.bindExchange(missing, 'amq.direct', 'k')],
  'purge of a missing queue': [404, /no queue/, 50, 30, (c) => c.purgeQueue(missing)],
  'reserved queue': [403, /ACCESS_REFUSED/, 50, 10, (c) => c.assertQueue(`amq.${missing}`, { exclusive: true })],
  'reserved exchange': [403, /ACCESS_REFUSED/, 40, 10, (c) => c.assertExchange(`amq.${missing}`, 'direct')],
  'predeclared exchange deleted': [403, /ACCESS_REFUSED/, 40, 20, (c) => c.deleteExchange('amq.topic')],
  'unknown type of exchange': [406, /unknown exchange type/, 40, 10, (c) => c.assertExchange(missing, 'x-burrow')],
  'other type of exchange': [406, /inequivalent arg 'type'/, 40, 10, (c) => c.assertExchange('amq.topic', 'direct')],
  'other durability of exchange': [
    406, /inequivalent arg 'durable'/, 40, 10, (c) => c.assertExchange('amq.topic', 'topic', { durable: false }),
  ],
  'other length': [
    406, /inequivalent arg 'x-max-length'/, 50, 10,
    (c, queue) => c.assertQueue(queue, { exclusive: true, durable: false, maxLength: 1 }),
  ],
  'other exclusivity': [405, /RESOURCE_LOCKED/, 50, 10, (c, queue) => c.assertQueue(queue, { durable: false })],
  'negative time to live': [406, /x-message-ttl/, 50, 10, (c) => c.assertQueue('', { exclusive: true, messageTtl: -1 })],
  'text for a length': [
    406, /x-max-length/, 50, 10, (c) => c.assertQueue('', { exclusive: true, arguments: { 'x-max-length': 'long' } }),
  ],
  'dead-letter key alone': [
    406, /PRECONDITION_FAILED/, 50, 10, (c) => c.assertQueue('', { exclusive: true, deadLetterRoutingKey: 'k' }),
  ],
  'too high a priority': [406, /x-max-priority/, 50, 10, (c) => c.assertQueue('', { exclusive: true, maxPriority: 256 })],
  'consumer priority as text': [406, /x-priority/, 60, 20, (c, queue) => c.consume(queue, () => {}, { priority: 'first' })],
};

for (const [name, [code, words, classId, methodId, ask]] of Object.entries(requests)) {
  scenario(`refused: ${name}`, async (s, t) => {
    if (name === 'unknown type of exchange' && s.isOldErlang) {
      t.skip('a connection error before RabbitMQ 4.0');
      return;
    }
    const queue = unique('queue');
    await s.channel.assertQueue(queue, { exclusive: true, durable: false });
    const used = await s.another();
    // Both the request and the channel tell the same error.
    const refusal = [code, words, classId, methodId];
    await closes(used, () => refuses(ask(used, queue), ...refusal), ...refusal);
    assert.throws(() => used.ackAll(), /Channel closed/);
    assert.equal(await s.depth(queue), 0);
  });
}

const unknown = { fields: { deliveryTag: 3 } };

// The same for what the broker does not answer.
const orders = {
  'ack of an unknown tag': [406, /unknown delivery tag 3/, 60, 80, (c) => c.ack(unknown)],
  'nack of an unknown tag': [406, /unknown delivery tag 3/, 60, 120, (c) => c.nack(unknown)],
  'reject of an unknown tag': [406, /unknown delivery tag 3/, 60, 90, (c) => c.reject(unknown)],
  'publish to a missing exchange': [404, /no exchange/, 60, 40, (c) => c.publish(missing, 'k', Buffer.from('x'))],
  'expiration that is no number': [
    406, /expiration/, 60, 40, (c, queue) => c.sendToQueue(queue, Buffer.from('x'), { expiration: 'soon' }),
  ],
  'user that is not logged in': [
    406, /user_id/, 60, 40, (c, queue) => c.sendToQueue(queue, Buffer.from('x'), { userId: 'other' }),
  ],
};

for (const [name, [code, words, classId, methodId, order]] of Object.entries(orders)) {
  scenario(`refused later: ${name}`, async (s) => {
    const queue = await s.queue();
    const used = await s.another();
    await closes(used, () => order(used, queue), code, words, classId, methodId);
    assert.equal(await s.depth(queue), 0);
  });
}

scenario('a message acked twice closes the channel', async (s) => {
  const queue = await s.queue();
  await s.fill(queue, 'once', 'twice');
  const used = await s.another();
  const message = await used.get(queue);
  used.ack(message);
  await closes(used, () => used.ack(message), 406, /unknown delivery tag 1/, 60, 80);
  assert.deepEqual(await s.drain(queue), ['twice']);
});

scenario('a queue in use or with messages is kept if that is asked', async (s) => {
  const queue = await s.queue();
  await s.consume(queue, {}, await s.another());
  await refuses((await s.another()).deleteQueue(queue, { ifUnused: true }), 406, /in use/, 50, 40);
  const full = await s.queue();
  await s.fill(full, 'x');
  await refuses((await s.another()).deleteQueue(full, { ifEmpty: true }), 406, /not empty/, 50, 40);
  const exchange = await s.exchange('direct');
  await s.bound(exchange, 'k');
  await refuses((await s.another()).deleteExchange(exchange, { ifUnused: true }), 406, /in use/, 40, 20);
  assert.deepEqual(await s.drain(full), ['x']);
});

scenario('an internal exchange takes no publishes', async (s) => {
  const { exchange } = await s.channel.assertExchange(unique('exchange'), 'fanout', { internal: true, durable: false });
  const used = await s.another();
  await closes(used, () => used.publish(exchange, '', Buffer.from('x')), 403, /internal/, 60, 40);
  await s.channel.deleteExchange(exchange);
});

scenario('a consumer tag twice on a channel closes the connection', async (s) => {
  const queue = await s.queue();
  const connection = await s.connect();
  const other = await s.another(connection);
  const channel = await s.another(connection);
  const own = (await channel.assertQueue('', { exclusive: true })).queue;
  await channel.consume(own, () => {}, { consumerTag: 'same' });
  await closes(connection, () => {
    channel.consume(own, () => {}, { consumerTag: 'same' }).catch(() => {});
  }, 530, /NOT_ALLOWED/);
  assert.throws(() => other.ackAll(), /closed/i);
  assert.equal(await s.depth(queue), 0);
});

scenario('confirms that never come are told when the channel is closed', async (s) => {
  const channel = await s.confirming();
  const outcomes = [];
  await closes(channel, () => {
    channel.publish(missing, 'k', Buffer.from('x'), {}, (error) => outcomes.push(error.message));
  }, 404, /no exchange/, 60, 40);
  assert.deepEqual(outcomes, ['channel closed']);
  await assert.rejects(channel.waitForConfirms(), /channel closed/);
});

scenario('one channel after another fails and the connection stays', async (s) => {
  for (const round of numbers(30)) {
    const used = await s.another();
    await closes(used, () => {
      for (let at = 0; at < 5; at++) used.publish(missing, round, Buffer.from('x'));
    }, 404, /no exchange/, 60, 40);
  }
  await s.queue();
});

scenario('requests behind a refused one are answered by errors', async (s) => {
  const used = await s.another();
  const requests = [used.checkQueue(missing), ...numbers(20).map(() => used.checkExchange('amq.direct'))];
  const results = await soon('every answer', Promise.allSettled(requests));
  assert.ok(results.every(({ status }) => status === 'rejected'));
  await s.roundTrip();
});
