import assert from 'node:assert/strict';
import { numbers, refuses, scenario, soon, text, unique, until } from './broker.js';

scenario('messages are delivered in order to a consumer', async (s) => {
  const queue = await s.queue();
  const inbox = await s.consume(queue);
  assert.match(inbox.consumerTag, /^amq\.ctag-/);
  await s.fill(queue, ...numbers(1000));
  const messages = await inbox.take(1000);
  assert.deepEqual(messages.map(text), numbers(1000));
  assert.deepEqual(messages.map(({ fields }) => fields.deliveryTag), Array.from({ length: 1000 }, (_, at) => at + 1));
  const { fields } = messages[0];
  assert.deepEqual(
    { ...fields },
    { consumerTag: inbox.consumerTag, deliveryTag: 1, redelivered: false, exchange: '', routingKey: queue },
  );
  s.channel.ackAll();
  await s.quiet(inbox);
});

scenario('a consumer without acks gets everything', async (s) => {
  const queue = await s.queue();
  await s.channel.prefetch(1);
  const inbox = await s.consume(queue, { noAck: true, consumerTag: 'mine' });
  assert.equal(inbox.consumerTag, 'mine');
  await s.fill(queue, ...numbers(100));
  assert.deepEqual(await inbox.bodies(100), numbers(100));
  await s.channel.close();
  s.channel = await s.another();
  assert.equal(await s.depth(queue), 0);
});

scenario('a cancelled consumer gets nothing more and keeps what it has', async (s) => {
  const queue = await s.queue();
  const inbox = await s.consume(queue);
  await s.fill(queue, 'a');
  const message = await inbox.next();
  assert.deepEqual({ ...(await s.channel.cancel(inbox.consumerTag)) }, { consumerTag: inbox.consumerTag });
  await s.fill(queue, 'b');
  assert.equal((await s.channel.checkQueue(queue)).consumerCount, 0);
  s.channel.ack(message);
  await s.quiet(inbox);
  assert.deepEqual(await s.drain(queue), ['b']);
  await s.channel.cancel(unique('no such consumer'));
});

scenario('consumers hear that their queue is gone', async (s) => {
  const queue = await s.queue();
  const [first, second] = [await s.consume(queue), await s.consume(queue)];
  assert.equal((await s.channel.deleteQueue(queue)).messageCount, 0);
  assert.equal(await first.next(), null);
  assert.equal(await second.next(), null);
  // A deletion by somebody else is told too.
  const shared = await s.durable();
  const inbox = await s.consume(shared);
  const other = await s.elsewhere();
  await other.deleteQueue(shared);
  assert.equal(await inbox.next(), null);
});

scenario('the prefetch count holds for each consumer', async (s) => {
  const queue = await s.queue();
  await s.fill(queue, ...numbers(10));
  await s.channel.prefetch(2);
  const first = await s.consume(queue);
  await s.channel.prefetch(3);
  const second = await s.consume(queue);
  const [own, others] = [await first.take(2), await second.take(3)];
  await s.quiet(first);
  await s.quiet(second);
  assert.deepEqual(own.map(text), ['0', '1']);
  assert.deepEqual(others.map(text), ['2', '3', '4']);
  s.channel.ack(own[0]);
  assert.equal(text(await first.next()), '5');
  s.channel.nack(others[1], false, false);
  assert.equal(text(await second.next()), '6');
  await s.quiet(first);
  await s.quiet(second);
});

scenario('a global prefetch count holds for the whole channel', async (s) => {
  const queue = await s.queue();
  await s.fill(queue, ...numbers(10));
  await s.channel.prefetch(3, true);
  const inboxes = [await s.consume(queue), await s.consume(queue)];
  const delivered = () => inboxes[0].length + inboxes[1].length;
  await until('three deliveries', () => delivered() >= 3);
  await s.roundTrip();
  assert.equal(delivered(), 3);
  s.channel.ackAll();
  await until('three more', () => delivered() >= 6);
  await s.roundTrip();
  assert.equal(delivered(), 6);
  await s.channel.prefetch(0, true);
  await until('the rest', () => delivered() === 10);
});

scenario('consumers take turns', async (s) => {
  const queue = await s.queue();
  await s.channel.prefetch(1);
  const inboxes = [await s.consume(queue), await s.consume(queue), await s.consume(queue)];
  const counts = [0, 0, 0];
  await s.fill(queue, ...numbers(30));
  for (let round = 0; round < 10; round++) {
    for (const [at, inbox] of inboxes.entries()) {
      s.channel.ack(await inbox.next());
      counts[at] += 1;
    }
  }
  assert.deepEqual(counts, [10, 10, 10]);
});

scenario('a consumer of higher priority is served first', async (s) => {
  const queue = await s.queue();
  await s.channel.prefetch(2);
  const low = await s.consume(queue);
  const high = await s.consume(queue, { priority: 10 });
  await s.fill(queue, ...numbers(3));
  assert.deepEqual(await high.bodies(2), ['0', '1']);
  assert.deepEqual(await low.bodies(1), ['2']);
});

scenario('an exclusive consumer is alone', async (s) => {
  const queue = await s.durable();
  await s.consume(queue, { exclusive: true });
  await refuses((await s.elsewhere()).consume(queue, () => {}), 403, /ACCESS_REFUSED/, 60, 20);
  const shared = await s.durable();
  await s.consume(shared);
  await refuses((await s.another()).consume(shared, () => {}, { exclusive: true }), 403, /exclusive/, 60, 20);
});

scenario('one consumer at a time is active if the queue says so', async (s) => {
  const queue = await s.queue({ arguments: { 'x-single-active-consumer': true } });
  const first = await s.consume(queue);
  const second = await s.consume(queue);
  await s.fill(queue, ...numbers(4));
  assert.deepEqual(await first.bodies(4), numbers(4));
  await s.quiet(second);
  await s.channel.cancel(first.consumerTag);
  await s.fill(queue, 'next');
  assert.deepEqual(await second.bodies(1), ['next']);
});

scenario('get tells how many messages remain', async (s) => {
  const queue = await s.queue();
  assert.equal(await s.channel.get(queue), false);
  await s.fill(queue, 'a', 'b', 'c');
  for (const [body, remaining] of [['a', 2], ['b', 1], ['c', 0]]) {
    const { content, fields } = await s.take(queue);
    assert.equal(content.toString(), body);
    assert.deepEqual([fields.messageCount, fields.redelivered, fields.routingKey], [remaining, false, queue]);
  }
  assert.equal(await s.channel.get(queue), false);
});

scenario('many channels consume at once', async (s) => {
  const queue = await s.queue();
  const channels = await Promise.all(numbers(100).map(() => s.another()));
  const inboxes = await Promise.all(channels.map((channel) => s.consume(queue, {}, channel)));
  await s.fill(queue, ...numbers(1000));
  for (const [at, inbox] of inboxes.entries()) {
    const messages = await inbox.take(10);
    channels[at].ack(messages[9], true);
  }
  await Promise.all(channels.map((channel) => soon('a closed channel', channel.close())));
  assert.equal(await s.depth(queue), 0);
});
