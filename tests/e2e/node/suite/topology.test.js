import assert from 'node:assert/strict';
import { numbers, refuses, scenario, unique, until } from './broker.js';

scenario('a direct exchange goes by the whole key', async (s) => {
  const exchange = await s.exchange('direct');
  const one = await s.bound(exchange, 'one');
  const both = await s.bound(exchange, 'one');
  await s.channel.bindQueue(both, exchange, 'two');
  for (const key of ['one', 'two', 'three', 'One', 'one ']) await s.send(exchange, key, [key]);
  assert.deepEqual(await s.drain(one), ['one']);
  assert.deepEqual(await s.drain(both), ['one', 'two']);
});

scenario('a fanout exchange ignores the key', async (s) => {
  const exchange = await s.exchange('fanout');
  const queues = [await s.bound(exchange), await s.bound(exchange, 'key'), await s.bound(exchange, 'other')];
  await s.channel.bindQueue(queues[0], exchange, 'twice');
  await s.send(exchange, 'any', ['a', 'b']);
  for (const queue of queues) assert.deepEqual(await s.drain(queue), ['a', 'b']);
});

scenario('a topic exchange goes by words', async (s) => {
  const exchange = await s.exchange('topic');
  const keys = ['', 'a', 'b', 'a.b', 'a.b.c', 'a..c', 'x.b', 'a.b.c.d', '.'];
  const wanted = {
    '#': keys,
    'a': ['a'],
    '*': ['', 'a', 'b'],
    'a.#': ['a', 'a.b', 'a.b.c', 'a..c', 'a.b.c.d'],
    'a.*': ['a.b'],
    'a.*.c': ['a.b.c', 'a..c'],
    '#.b': ['b', 'a.b', 'x.b'],
    '*.b.#': ['a.b', 'a.b.c', 'x.b', 'a.b.c.d'],
    '#.b.#': ['b', 'a.b', 'a.b.c', 'x.b', 'a.b.c.d'],
    'a.#.d': ['a.b.c.d'],
  };
  const queues = {};
  for (const pattern of Object.keys(wanted)) queues[pattern] = await s.bound(exchange, pattern);
  for (const key of keys) await s.send(exchange, key, [key]);
  for (const [pattern, bodies] of Object.entries(wanted)) {
    // An empty key has no word.
    const expected = pattern === '*' ? bodies.filter((body) => body !== '') : bodies;
    assert.deepEqual(await s.drain(queues[pattern]), expected, pattern);
  }
});

scenario('a headers exchange goes by headers', async (s) => {
  const exchange = await s.exchange('headers');
  const all = await s.bound(exchange, '', { 'x-match': 'all', kind: 'order', size: 3 });
  const any = await s.bound(exchange, '', { 'x-match': 'any', kind: 'order', size: 3 });
  const implied = await s.bound(exchange, '', { kind: 'order' });
  const present = await s.bound(exchange, '', { 'x-match': 'all', kind: null });
  const special = await s.bound(exchange, '', { 'x-match': 'all-with-x', 'x-kind': 'order' });
  const cases = {
    both: { kind: 'order', size: 3 },
    kind: { kind: 'order', size: 4 },
    size: { kind: 'offer', size: 3 },
    typed: { kind: 1, size: '3' },
    special: { 'x-kind': 'order' },
    none: {},
  };
  for (const [body, headers] of Object.entries(cases)) await s.send(exchange, 'key', [body], { headers });
  assert.deepEqual(await s.drain(all), ['both']);
  assert.deepEqual(await s.drain(any), ['both', 'kind', 'size']);
  assert.deepEqual(await s.drain(implied), ['both', 'kind']);
  assert.deepEqual(await s.drain(present), ['both', 'kind', 'size', 'typed']);
  assert.deepEqual(await s.drain(special), ['special']);
  await refuses(
    (await s.another()).bindQueue(all, exchange, '', { 'x-match': 'most' }),
    406, /PRECONDITION_FAILED/, 50, 20,
  );
});

scenario('a consistent-hash exchange keeps a key at one queue', async (s, t) => {
  if (s.onErlang) {
    t.skip('the plugin may be off');
    return;
  }
  const exchange = await s.exchange('x-consistent-hash');
  const queues = [await s.bound(exchange, '1'), await s.bound(exchange, '1'), await s.bound(exchange, '1')];
  const keys = numbers(300);
  const seen = [];
  for (let round = 0; round < 2; round++) {
    for (const key of keys) s.channel.publish(exchange, key, Buffer.from(key));
    await s.send(exchange, 'last', ['last']);
    await until('all routed', async () => {
      const depths = await Promise.all(queues.map((queue) => s.depth(queue)));
      return depths.reduce((sum, depth) => sum + depth) === keys.length + 1;
    });
    seen.push(await Promise.all(queues.map(async (queue) => (await s.drain(queue)).sort())));
  }
  assert.deepEqual(seen[0], seen[1]);
  for (const share of seen[0]) assert.ok(share.length > 30, `a share of ${share.length}`);
});

scenario('a delayed message comes later', async (s, t) => {
  if (s.onErlang) {
    t.skip('the plugin may be off');
    return;
  }
  const exchange = await s.exchange('x-delayed-message', { arguments: { 'x-delayed-type': 'direct' } });
  const queue = await s.bound(exchange, 'k');
  for (const delay of [500, 200, 0]) await s.send(exchange, 'k', [String(delay)], { headers: { 'x-delay': delay } });
  for (const body of ['0', '200', '500']) assert.equal((await s.arrived(queue)).content.toString(), body);
});

scenario('exchanges are bound to exchanges', async (s) => {
  const [source, middle, last] = [await s.exchange('topic'), await s.exchange('direct'), await s.exchange('fanout')];
  await s.channel.bindExchange(middle, source, 'a.#');
  await s.channel.bindExchange(last, middle, 'a.b');
  // Two ways and a loop still bring one copy.
  await s.channel.bindExchange(last, source, '#.b');
  await s.channel.bindExchange(source, last, '');
  const queue = await s.bound(last);
  await s.send(source, 'a.b', ['both ways']);
  await s.send(source, 'a.c', ['nowhere']);
  await s.send(middle, 'a.b', ['by half']);
  assert.deepEqual(await s.drain(queue), ['both ways', 'by half']);
  await s.channel.unbindExchange(last, source, '#.b');
  await s.channel.unbindExchange(last, source, 'never bound');
  await s.send(source, 'x.b', ['cut']);
  assert.deepEqual(await s.drain(queue), []);
  // Exchanges in a loop would keep each other.
  await s.channel.unbindExchange(source, last, '');
});

scenario('an alternate exchange gets what finds no queue', async (s) => {
  const last = await s.exchange('fanout');
  const second = await s.exchange('direct', { alternateExchange: last });
  const first = await s.exchange('direct', { alternateExchange: second });
  const [own, next, rest] = [await s.bound(first, 'own'), await s.bound(second, 'next'), await s.bound(last)];
  for (const key of ['own', 'next', 'other']) await s.send(first, key, [key], { mandatory: true });
  assert.deepEqual(await s.drain(own), ['own']);
  assert.deepEqual(await s.drain(next), ['next']);
  assert.deepEqual(await s.drain(rest), ['other']);
  await refuses(
    (await s.another()).assertExchange(first, 'direct', { durable: false, autoDelete: true, alternateExchange: last }),
    406, /alternate-exchange/, 40, 10,
  );
});

scenario('the default exchange reaches every queue by its name', async (s) => {
  const queue = await s.queue();
  await s.fill(queue, 'named');
  assert.deepEqual(await s.drain(queue), ['named']);
  await refuses((await s.another()).bindQueue(queue, '', 'k'), 403, /ACCESS_REFUSED/, 50, 20);
  await refuses((await s.another()).unbindQueue(queue, '', queue), 403, /ACCESS_REFUSED/, 50, 50);
});

scenario('an unbound queue gets nothing more', async (s) => {
  const exchange = await s.exchange('direct');
  const stays = await s.bound(exchange, 'k');
  const goes = await s.bound(exchange, 'k');
  await s.channel.bindQueue(goes, exchange, 'k', { number: 1 });
  await s.channel.unbindQueue(goes, exchange, 'k');
  await s.send(exchange, 'k', ['other arguments']);
  await s.channel.unbindQueue(goes, exchange, 'k', { number: 1 });
  await s.channel.unbindQueue(goes, exchange, 'k', { number: 1 });
  await s.send(exchange, 'k', ['after']);
  assert.deepEqual(await s.drain(goes), ['other arguments']);
  assert.deepEqual(await s.drain(stays), ['other arguments', 'after']);
});

scenario('an auto-delete exchange goes with its last binding', async (s) => {
  const [source, target] = [await s.exchange('fanout'), await s.exchange('fanout')];
  await s.channel.bindExchange(target, source, '');
  const queue = await s.bound(target);
  await s.channel.checkExchange(source);
  await s.channel.deleteQueue(queue);
  for (const gone of [target, source]) {
    await refuses((await s.another()).checkExchange(gone), 404, /no exchange/, 40, 10);
  }
});

scenario('the broker names queues', async (s) => {
  const first = await s.channel.assertQueue('', { exclusive: true });
  assert.match(first.queue, /^amq\.gen-/);
  assert.deepEqual([first.messageCount, first.consumerCount], [0, 0]);
  const { queue } = await s.channel.assertQueue('', { exclusive: true });
  assert.notEqual(queue, first.queue);
  // An empty name means the latest queue of the channel.
  await s.channel.bindQueue('', 'amq.direct', queue);
  await s.send('amq.direct', queue, ['latest']);
  assert.equal((await s.channel.get('', { noAck: true })).content.toString(), 'latest');
});

scenario('a queue tells its messages and consumers', async (s) => {
  const queue = await s.queue();
  await s.fill(queue, 'a', 'b', 'c');
  const counts = async () => {
    const { messageCount, consumerCount } = await s.channel.checkQueue(queue);
    return [messageCount, consumerCount];
  };
  assert.deepEqual(await counts(), [3, 0]);
  await s.channel.prefetch(1);
  const inbox = await s.consume(queue);
  await inbox.next();
  assert.deepEqual(await counts(), [2, 1]);
  assert.equal((await s.channel.deleteQueue(queue)).messageCount, 2);
});

scenario('an exclusive queue is locked to its connection and goes with it', async (s) => {
  const owner = await s.connect();
  const channel = await s.another(owner);
  const name = unique('queue');
  await channel.assertQueue(name, { exclusive: true, durable: false });
  const uses = {
    'declare': [(other) => other.assertQueue(name, { exclusive: true, durable: false }), 50, 10],
    'check': [(other) => other.checkQueue(name), 50, 10],
    'bind': [(other) => other.bindQueue(name, 'amq.direct', 'k'), 50, 20],
    'consume': [(other) => other.consume(name, () => {}), 60, 20],
    'get': [(other) => other.get(name), 60, 70],
    'purge': [(other) => other.purgeQueue(name), 50, 30],
    'delete': [(other) => other.deleteQueue(name), 50, 40],
  };
  for (const [use, classId, methodId] of Object.values(uses)) {
    await refuses(use(await s.another()), 405, /RESOURCE_LOCKED/, classId, methodId);
  }
  assert.equal((await channel.checkQueue(name)).messageCount, 0);
  await owner.close();
  await refuses(s.channel.checkQueue(name), 404, /no queue/, 50, 10);
});

scenario('an auto-delete queue goes with its last consumer', async (s) => {
  const { queue } = await s.channel.assertQueue(unique('queue'), { autoDelete: true, durable: false });
  const [first, second] = [await s.consume(queue), await s.consume(queue)];
  await s.channel.cancel(first.consumerTag);
  assert.equal((await s.channel.checkQueue(queue)).consumerCount, 1);
  await s.channel.cancel(second.consumerTag);
  await refuses((await s.elsewhere()).checkQueue(queue), 404, /no queue/, 50, 10);
});

scenario('what one connection declares the others see at once', async (s) => {
  const other = await s.elsewhere();
  for (let round = 0; round < 20; round++) {
    const queue = await s.durable();
    const exchange = await s.exchange('direct');
    await s.channel.bindQueue(queue, exchange, 'k');
    other.publish(exchange, 'k', Buffer.from(String(round)));
    await other.checkExchange(exchange);
    await until('the message', async () => (await s.depth(queue)) === 1);
    await other.deleteQueue(queue);
    const asking = await s.another();
    await refuses(asking.checkQueue(queue), 404, /no queue/, 50, 10);
  }
});

scenario('deleting twice is fine, and so is deleting what never was', async (s) => {
  const queue = await s.queue();
  await s.channel.deleteQueue(queue);
  assert.equal((await s.channel.deleteQueue(queue)).messageCount, 0);
  const { exchange } = await s.channel.assertExchange(unique('exchange'), 'direct', { durable: false });
  await s.channel.deleteExchange(exchange);
  await s.channel.deleteExchange(exchange);
  await s.channel.deleteExchange(unique('exchange'));
});

scenario('declaring again with the same settings is fine', async (s) => {
  const options = {
    messageTtl: 60_000,
    expires: 120_000,
    maxLength: 10,
    overflow: 'drop-head',
    deadLetterExchange: 'amq.fanout',
    deadLetterRoutingKey: 'k',
    arguments: { 'x-of-nobody': 'kept' },
  };
  const queue = await s.durable(options);
  await s.channel.assertQueue(queue, { ...options, arguments: { 'x-of-nobody': 'changed' } });
  const { exchange } = await s.channel.assertExchange(unique('exchange'), 'topic');
  await s.channel.assertExchange(exchange, 'topic');
  await s.channel.deleteExchange(exchange);
});
