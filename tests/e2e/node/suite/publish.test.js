import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { Inbox, address, numbers, scenario, soon, text, unique } from './broker.js';

scenario('every publish of a confirm channel is confirmed', async (s) => {
  const queue = await s.queue();
  const channel = await s.confirming();
  let confirmed = 0;
  const bodies = numbers(2000);
  for (const body of bodies) {
    channel.sendToQueue(queue, Buffer.from(body), {}, (error) => {
      assert.equal(error, null);
      confirmed += 1;
    });
  }
  await soon('confirms', channel.waitForConfirms());
  assert.equal(confirmed, bodies.length);
  assert.deepEqual(await s.drain(queue), bodies);
});

scenario('persistent messages of a durable queue are confirmed', async (s) => {
  const queue = await s.durable();
  await s.send('', queue, numbers(200), { persistent: true });
  const first = await s.take(queue, { noAck: true });
  assert.equal(first.properties.deliveryMode, 2);
  assert.equal(first.fields.messageCount, 199);
});

scenario('a message that reaches no queue is confirmed', async (s) => {
  await s.send('amq.direct', unique('nowhere'), ['lost']);
  await s.send('', unique('nowhere'), ['lost']);
});

scenario('a full queue that rejects nacks', async (s) => {
  const queue = await s.queue({ maxLength: 2, overflow: 'reject-publish' });
  const channel = await s.confirming();
  const outcomes = new Inbox();
  for (const body of numbers(2)) channel.sendToQueue(queue, Buffer.from(body), {}, (error) => outcomes.put(error));
  assert.deepEqual(await outcomes.take(2), [null, null]);
  channel.sendToQueue(queue, Buffer.from('too many'), {}, (error) => outcomes.put(error));
  assert.match((await outcomes.next()).message, /nacked/);
  assert.deepEqual(await s.drain(queue), ['0', '1']);
});

scenario('an unroutable mandatory message comes back before its confirm', async (s) => {
  const channel = await s.confirming();
  const queue = await s.queue();
  const key = unique('nowhere');
  const events = new Inbox();
  channel.on('return', (message) => events.put(message));
  const options = { mandatory: true, messageId: 'm-1', contentType: 'text/plain', headers: { a: 1 } };
  for (const round of numbers(50)) {
    channel.publish('amq.direct', key, Buffer.from(round), options, (error) => events.put({ confirmed: round, error }));
    channel.publish('', queue, Buffer.from('routed'), options);
  }
  await soon('confirms', channel.waitForConfirms());
  const returned = [];
  for (const event of await events.take(100)) {
    if (event.fields) {
      returned.push(text(event));
    } else {
      assert.equal(event.error, null);
      assert.ok(returned.includes(event.confirmed), `${event.confirmed} is confirmed and not returned yet`);
    }
    if (returned.length === 1 && event.fields) {
      assert.deepEqual(
        { ...event.fields },
        { replyCode: 312, replyText: 'NO_ROUTE', exchange: 'amq.direct', routingKey: key },
      );
      const { messageId, contentType, headers } = event.properties;
      assert.deepEqual({ mandatory: true, messageId, contentType, headers }, options);
    }
  }
  assert.deepEqual(returned, numbers(50));
  assert.equal(events.length, 0);
  assert.equal(await s.depth(queue), 50);
});

scenario('properties and headers arrive as they were sent', async (s) => {
  const queue = await s.queue();
  const headers = {
    yes: true,
    no: false,
    text: 'Grüße, 兎 🐇',
    empty: '',
    tiny: -128,
    short: -32768,
    int: 2147483647,
    long: 1099511627776,
    double: 3.25,
    unsignedByte: { '!': 'uint8', value: 255 },
    unsignedShort: { '!': 'uint16', value: 65535 },
    unsignedInt: { '!': 'uint32', value: 4294967295 },
    float: { '!': 'float', value: 0.5 },
    timestamp: { '!': 'timestamp', value: 1_700_000_000 },
    decimal: { '!': 'decimal', value: { digits: 314, places: 2 } },
    nothing: null,
    bytes: Buffer.from([0, 1, 254, 255]),
    list: ['a', 1, true, null, [2], { deep: 'er' }],
    table: { inner: { most: 'deep' } },
    [`k${'x'.repeat(126)}`]: 'a key of 127 bytes',
  };
  const options = {
    contentType: 'application/json',
    contentEncoding: 'utf-8',
    headers,
    persistent: true,
    priority: 7,
    correlationId: 'c-1',
    replyTo: 'answers',
    expiration: '60000',
    messageId: 'm-1',
    timestamp: 1_700_000_001,
    type: 'order',
    userId: 'guest',
    appId: 'shop',
  };
  await s.send('', queue, ['{}'], options);
  const { properties } = await s.take(queue, { noAck: true });
  const { headers: received, ...rest } = properties;
  const { headers: sent, persistent, ...wanted } = options;
  assert.deepEqual({ ...rest }, { ...wanted, deliveryMode: 2, clusterId: undefined });
  assert.deepEqual(received, {
    ...sent,
    unsignedByte: 255,
    unsignedShort: 65535,
    unsignedInt: 4294967295,
    float: 0.5,
  });
});

scenario('large and empty bodies stay whole', async (s) => {
  const queue = await s.queue();
  const inbox = await s.consume(queue, { noAck: true });
  const large = Buffer.alloc(7 * 1024 * 1024 + 3);
  for (let at = 0; at < large.length; at += 4096) large.writeUInt32LE(at, Math.min(at, large.length - 4));
  const digest = (body) => createHash('sha256').update(body).digest('hex');
  // A frame carries 131 064 bytes of a body.
  const sizes = [0, 1, 131_063, 131_064, 131_065, 262_128];
  await s.send('', queue, [large, ...sizes.map((size) => large.subarray(0, size)), large]);
  assert.equal(digest((await inbox.next()).content), digest(large));
  for (const size of sizes) assert.equal(digest((await inbox.next()).content), digest(large.subarray(0, size)));
  assert.equal(digest((await inbox.next()).content), digest(large));
});

scenario('small frames carry large bodies both ways', async (s) => {
  const uri = new URL(address);
  uri.search = '?frameMax=8192';
  const channel = await s.confirming(await s.connect({}, uri.href));
  const queue = await s.durable();
  const body = Buffer.alloc(1_000_003, 'lepus');
  for (let at = 0; at < 2; at++) channel.sendToQueue(queue, body);
  await soon('confirms', channel.waitForConfirms());
  const small = await soon('a message', channel.get(queue, { noAck: true }));
  const usual = await s.take(queue, { noAck: true });
  for (const { content } of [small, usual]) assert.ok(body.equals(content));
});

scenario('CC and BCC add routes, and BCC is not shown', async (s) => {
  const [first, copied, blind] = [await s.queue(), await s.queue(), await s.queue()];
  await s.send('', first, ['x'], { CC: [copied, first], BCC: blind, headers: { own: 1 } });
  for (const queue of [first, copied, blind]) {
    const { properties, fields } = await s.take(queue, { noAck: true });
    assert.deepEqual(properties.headers, { own: 1, CC: [copied, first] });
    assert.equal(fields.messageCount, 0);
    assert.equal(fields.routingKey, first);
  }
});

scenario('answers come back by direct reply-to', async (s) => {
  const server = await s.elsewhere();
  const requests = await s.queue();
  const replies = await s.consume('amq.rabbitmq.reply-to', { noAck: true });
  for (const word of ['hop', 'hide']) {
    s.channel.sendToQueue(requests, Buffer.from(word), { replyTo: 'amq.rabbitmq.reply-to', correlationId: word });
    const request = await s.arrived(requests);
    assert.match(request.properties.replyTo, /^amq\.rabbitmq\.reply-to\../);
    server.sendToQueue(request.properties.replyTo, Buffer.from(word.toUpperCase()), {
      correlationId: request.properties.correlationId,
    });
    const reply = await replies.next();
    assert.deepEqual([text(reply), reply.properties.correlationId], [word.toUpperCase(), word]);
  }
});
