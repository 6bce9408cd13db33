import assert from 'node:assert/strict';
import { numbers, refuses, scenario, text, unique, until } from './broker.js';

// Checks one entry of x-death.
function died(death, reason, queue, exchange, key, count) {
  assert.deepEqual(
    [death.reason, death.queue, death.exchange, death['routing-keys'], death.count],
    [reason, queue, exchange, [key], count],
  );
  assert.equal(death.time['!'], 'timestamp');
  assert.ok(Math.abs(death.time.value - Date.now() / 1000) < 600, `died at ${death.time.value}`);
}

scenario('messages expire', async (s) => {
  const queue = await s.queue({ messageTtl: 200 });
  const own = await s.queue();
  await s.fill(queue, 'a', 'b');
  await s.send('', own, ['short'], { expiration: 100 });
  await s.fill(own, 'for ever');
  await until('all expired', async () => (await s.depth(queue)) === 0 && (await s.depth(own)) === 1);
  assert.deepEqual(await s.drain(own), ['for ever']);
});

scenario('without any time a message needs a waiting consumer', async (s) => {
  const queue = await s.queue({ messageTtl: 0 });
  await s.fill(queue, 'lost');
  assert.deepEqual(await s.drain(queue), []);
  const inbox = await s.consume(queue, { noAck: true });
  await s.fill(queue, 'at once');
  assert.deepEqual(await inbox.bodies(1), ['at once']);
});

scenario('a queue that nobody uses expires', async (s) => {
  const { queue } = await s.channel.assertQueue(unique('queue'), { durable: false, expires: 1000 });
  const inbox = await s.consume(queue, { noAck: true });
  await new Promise((resolve) => setTimeout(resolve, 1500));
  await s.fill(queue, 'still here');
  assert.deepEqual(await inbox.bodies(1), ['still here']);
  await s.channel.cancel(inbox.consumerTag);
  // Asking for the queue would renew its lease; a mandatory message does not.
  const returned = [];
  s.channel.on('return', (message) => returned.push(message));
  await until('the queue is gone', () => {
    s.channel.sendToQueue(queue, Buffer.from('x'), { mandatory: true });
    return returned.length > 0;
  });
  await refuses(s.channel.checkQueue(queue), 404, /no queue/, 50, 10);
});

scenario('expired messages die into their exchange', async (s) => {
  const graves = await s.exchange('direct');
  const grave = await s.bound(graves, 'dead');
  const queue = await s.queue({ deadLetterExchange: graves, deadLetterRoutingKey: 'dead' });
  await s.send('', queue, ['x'], { expiration: '50', headers: { own: 'kept' }, messageId: 'm-1' });
  const dead = await s.arrived(grave);
  assert.deepEqual([text(dead), dead.fields.exchange, dead.fields.routingKey], ['x', graves, 'dead']);
  const { headers, expiration, messageId } = dead.properties;
  assert.deepEqual([expiration, messageId, headers.own], [undefined, 'm-1', 'kept']);
  assert.deepEqual(
    ['reason', 'queue', 'exchange'].map((what) => headers[`x-first-death-${what}`]),
    ['expired', queue, ''],
  );
  assert.equal(headers['x-death'].length, 1);
  died(headers['x-death'][0], 'expired', queue, '', queue, 1);
  assert.equal(headers['x-death'][0]['original-expiration'], '50');
});

scenario('rejected messages die', async (s) => {
  const [source, graves] = [await s.exchange('topic'), await s.exchange('topic')];
  const grave = await s.bound(graves, 'orders.#');
  const queue = await s.queue({ deadLetterExchange: graves });
  await s.channel.bindQueue(queue, source, 'orders.*');
  await s.send(source, 'orders.new', ['rejected', 'nacked', 'acked']);
  s.channel.reject(await s.take(queue), false);
  s.channel.nack(await s.take(queue), false, false);
  s.channel.ack(await s.take(queue));
  for (const body of ['rejected', 'nacked']) {
    const dead = await s.arrived(grave);
    assert.equal(text(dead), body);
    died(dead.properties.headers['x-death'][0], 'rejected', queue, source, 'orders.new', 1);
  }
  await s.roundTrip();
  assert.equal(await s.depth(grave), 0);
});

scenario('the oldest die when a queue is full', async (s) => {
  const graves = await s.exchange('fanout');
  const grave = await s.bound(graves);
  const queue = await s.queue({ maxLength: 2, deadLetterExchange: graves });
  await s.fill(queue, ...numbers(5));
  assert.deepEqual(await s.drain(queue), ['3', '4']);
  await until('three are dead', async () => (await s.depth(grave)) === 3);
  died((await s.take(grave, { noAck: true })).properties.headers['x-death'][0], 'maxlen', queue, '', queue, 1);
  assert.deepEqual(await s.drain(grave), ['1', '2']);
  const limited = await s.queue({ arguments: { 'x-max-length-bytes': 10 } });
  await s.fill(limited, '12345', '67890', 'abcde');
  assert.deepEqual(await s.drain(limited), ['67890', 'abcde']);
});

scenario('deaths are counted for each queue and reason', async (s) => {
  const parking = unique('queue');
  const work = await s.queue({ deadLetterExchange: '', deadLetterRoutingKey: parking });
  await s.channel.assertQueue(parking, {
    exclusive: true, durable: false, messageTtl: 30, deadLetterExchange: '', deadLetterRoutingKey: work,
  });
  const inbox = await s.consume(work);
  await s.fill(work, 'retry');
  for (let round = 0; round < 4; round++) {
    const message = await inbox.next();
    if (round > 0) {
      const deaths = message.properties.headers['x-death'];
      assert.equal(deaths.length, 2);
      died(deaths[0], 'expired', parking, '', parking, round);
      died(deaths[1], 'rejected', work, '', work, round);
    }
    s.channel.nack(message, false, false);
  }
});

scenario('a delivery limit ends retries', async (s) => {
  const graves = await s.exchange('fanout');
  const grave = await s.bound(graves);
  const queue = await s.durable({
    deadLetterExchange: graves, arguments: { 'x-queue-type': 'quorum', 'x-delivery-limit': 2 },
  });
  await s.fill(queue, 'poison');
  const inbox = await s.consume(queue);
  for (let round = 0; round < 3; round++) {
    const message = await inbox.next();
    assert.equal(message.fields.redelivered, round > 0);
    s.channel.nack(message);
  }
  const dead = await s.arrived(grave);
  died(dead.properties.headers['x-death'][0], 'delivery_limit', queue, '', queue, 1);
});

scenario('higher priorities come first', async (s) => {
  const queue = await s.queue({ maxPriority: 5 });
  for (const [at, priority] of [1, 5, undefined, 3, 9, 3].entries()) await s.send('', queue, [String(at)], { priority });
  assert.deepEqual(await s.drain(queue), ['1', '4', '3', '5', '0', '2']);
});
