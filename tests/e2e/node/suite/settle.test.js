import assert from 'node:assert/strict';
import { numbers, scenario, text } from './broker.js';

const kinds = { classic: {}, quorum: { arguments: { 'x-queue-type': 'quorum' } } };

for (const [kind, options] of Object.entries(kinds)) {
  const fresh = (s) => (kind === 'classic' ? s.queue() : s.durable(options));

  scenario(`acked messages are gone for good (${kind})`, async (s) => {
    const queue = await fresh(s);
    await s.fill(queue, ...numbers(6));
    const own = await s.another();
    const inbox = await s.consume(queue, {}, own);
    const messages = await inbox.take(6);
    own.ack(messages[4]);
    own.ack(messages[2], true);
    await own.close();
    assert.deepEqual(await s.drain(queue), ['3', '5']);
  });

  scenario(`requeued messages keep their places (${kind})`, async (s, t) => {
    if (kind === 'quorum' && s.isOldErlang) {
      t.skip('quorum queues of RabbitMQ before 4.0 put them behind the others');
      return;
    }
    const queue = await fresh(s);
    await s.fill(queue, ...numbers(5));
    const taken = [];
    for (const body of numbers(3)) {
      taken.push(await s.take(queue));
      assert.equal(text(taken.at(-1)), body);
    }
    s.channel.reject(taken[1], true);
    s.channel.nack(taken[0], false, true);
    s.channel.nack(taken[2]);
    const again = [];
    for (const body of numbers(5)) {
      again.push(await s.take(queue));
      assert.equal(text(again.at(-1)), body);
    }
    assert.deepEqual(again.map(({ fields }) => fields.redelivered), [true, true, true, false, false]);
    s.channel.nackAll(true);
    assert.deepEqual(await s.drain(queue), numbers(5));
  });

  scenario(`rejected messages are dropped unless they go back (${kind})`, async (s) => {
    const queue = await fresh(s);
    await s.fill(queue, ...numbers(5));
    const inbox = await s.consume(queue);
    const messages = await inbox.take(5);
    s.channel.reject(messages[0], false);
    s.channel.nack(messages[2], true, false);
    await s.channel.cancel(inbox.consumerTag);
    s.channel.nackAll(false);
    assert.deepEqual(await s.drain(queue), []);
  });

  scenario(`what a closed channel leaves comes back in order (${kind})`, async (s) => {
    const queue = await fresh(s);
    await s.fill(queue, ...numbers(2000));
    const own = await s.another();
    const inbox = await s.consume(queue, {}, own);
    await inbox.take(2000);
    await own.close();
    const again = await s.consume(queue);
    const messages = await again.take(2000);
    assert.deepEqual(messages.map(text), numbers(2000));
    assert.ok(messages.every(({ fields }) => fields.redelivered));
  });
}

scenario('what a closed connection leaves comes back in order', async (s) => {
  const queue = await s.durable();
  await s.fill(queue, ...numbers(500));
  const connection = await s.connect();
  const inbox = await s.consume(queue, {}, await s.another(connection));
  await inbox.take(500);
  await connection.close();
  assert.deepEqual(await s.drain(queue), numbers(500));
});

scenario('recover brings back what is not settled', async (s) => {
  const queue = await s.queue();
  const inbox = await s.consume(queue);
  await s.fill(queue, 'a', 'b', 'c');
  s.channel.ack((await inbox.take(3))[1]);
  await s.channel.recover();
  const again = await inbox.take(2);
  assert.deepEqual(again.map(text), ['a', 'c']);
  assert.ok(again.every(({ fields }) => fields.redelivered));
});

scenario('a message turned down at once comes to the next consumer', async (s) => {
  const queue = await s.queue();
  const [one, two] = [await s.another(), await s.another()];
  await one.prefetch(1);
  await two.prefetch(1);
  const first = await s.consume(queue, {}, one);
  await s.fill(queue, 'work');
  const message = await first.next();
  const second = await s.consume(queue, {}, two);
  await one.cancel(first.consumerTag);
  one.nack(message);
  const again = await second.next();
  assert.deepEqual([text(again), again.fields.redelivered], ['work', true]);
});

scenario('purge takes only what is ready', async (s) => {
  const queue = await s.queue();
  await s.fill(queue, ...numbers(5));
  const held = await s.take(queue);
  assert.equal((await s.channel.purgeQueue(queue)).messageCount, 4);
  assert.equal(await s.depth(queue), 0);
  s.channel.nack(held);
  assert.deepEqual(await s.drain(queue), ['0']);
});
