import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import amqp from 'amqplib';
import { address, closes, numbers, scenario, soon, unique, until } from './broker.js';

// The broker's address with another part.
function changed(change) {
  const uri = new URL(address);
  change(uri);
  return uri.href;
}

const { username, password } = new URL(address);
const [user, word] = [decodeURIComponent(username || 'guest'), decodeURIComponent(password || 'guest')];

scenario('the broker says what it is and can do', async (s) => {
  const { product, version, capabilities } = s.connection.connection.serverProperties;
  assert.equal(product, 'RabbitMQ');
  assert.match(version, /^\d+\.\d+\.\d+/);
  for (const capability of [
    'publisher_confirms', 'exchange_exchange_bindings', 'basic.nack', 'consumer_cancel_notify', 'connection.blocked',
    'consumer_priorities', 'authentication_failure_close', 'per_consumer_qos', 'direct_reply_to',
  ]) {
    assert.equal(capabilities[capability], true, capability);
  }
  assert.deepEqual([s.connection.connection.channelMax, s.connection.connection.frameMax], [2047, 131072]);
});

scenario('PLAIN and AMQPLAIN log in', async (s) => {
  for (const credentials of [amqp.credentials.plain(user, word), amqp.credentials.amqplain(user, word)]) {
    const channel = await s.elsewhere({ credentials, clientProperties: { connection_name: 'e2e' } });
    await channel.checkExchange('amq.direct');
  }
});

scenario('a wrong password is refused', async () => {
  for (const credentials of [amqp.credentials.plain(user, 'wrong'), amqp.credentials.amqplain(randomUUID(), word)]) {
    const refused = soon('a refusal', amqp.connect(address, { credentials }));
    await assert.rejects(refused, /403 \(ACCESS-REFUSED\).*Login was refused/);
  }
});

scenario('a mechanism that is not offered is refused', async () => {
  const credentials = { mechanism: 'UNSUPPORTED', response: () => Buffer.from('') };
  await assert.rejects(soon('a refusal', amqp.connect(address, { credentials })), /UNSUPPORTED/);
});

scenario('a missing virtual host is refused', async () => {
  const uri = changed((parts) => { parts.pathname = `/${unique('vhost')}`; });
  await assert.rejects(soon('a refusal', amqp.connect(uri)), /ConnectionClose/);
});

scenario('too small frames are refused', async () => {
  const uri = changed((parts) => { parts.search = '?frameMax=1024'; });
  await assert.rejects(soon('a refusal', amqp.connect(uri)));
});

scenario('channel numbers are limited and used again', async (s) => {
  const connection = await s.connect({}, changed((parts) => { parts.search = '?channelMax=8'; }));
  const channels = await Promise.all(numbers(8).map(() => s.another(connection)));
  await assert.rejects(connection.createChannel(), /No channels left/);
  await channels[3].close();
  const again = await s.another(connection);
  assert.equal(again.ch, channels[3].ch);
  await again.checkExchange('amq.direct');
});

scenario('channels open and close in a tight loop', async (s) => {
  for (const round of numbers(500)) {
    const channel = await s.another();
    if (round % 2) channel.publish('', round, Buffer.from('x'));
    await soon('a closed channel', channel.close());
  }
  await s.roundTrip();
});

scenario('heartbeats keep a quiet connection', async (s) => {
  const connection = await s.connect({}, changed((parts) => { parts.search = '?heartbeat=1'; }));
  assert.equal(connection.connection.heartbeat, 1);
  const failures = [];
  connection.on('error', (error) => failures.push(error));
  const channel = await s.another(connection);
  // The client gives up after two silent seconds, the broker after two or three.
  await pause(4500);
  assert.deepEqual(failures, []);
  await channel.checkExchange('amq.direct');
});

scenario('the broker drops a client that has fallen silent', async (s) => {
  const connection = await s.connect({}, changed((parts) => { parts.search = '?heartbeat=1'; }));
  const queue = unique('queue');
  await (await s.another(connection)).assertQueue(queue, { exclusive: true, durable: false });
  connection.connection.heartbeater.clear();
  const closed = new Promise((resolve) => { connection.on('close', resolve); });
  await soon('a lost connection', closed);
  // The socket's end is there first: what belonged to the connection goes when the broker gets to it.
  await until('the queue is gone', async () => {
    const asking = await s.another();
    const refusal = await asking.checkQueue(queue).then(() => undefined, (reason) => reason);
    assert.match(refusal.message, /404|405/);
    return refusal.code === 404;
  });
});

scenario('without heartbeats there is no limit to silence', async (s) => {
  const connection = await s.connect({}, changed((parts) => { parts.search = '?heartbeat=0'; }));
  assert.equal(connection.connection.heartbeat, 0);
  await (await s.another(connection)).checkExchange('amq.direct');
});

scenario('a secret is updated', async (s) => {
  await soon('update-secret-ok', s.connection.updateSecret(Buffer.from('a new one'), 'it was time'));
  await s.roundTrip();
});

scenario('closing a connection takes its channels along', async (s) => {
  const connection = await s.connect();
  const channel = await s.another(connection);
  await soon('a closed connection', connection.close());
  assert.throws(() => channel.ackAll(), /closed/i);
  await assert.rejects(connection.createChannel(), /closed/i);
});

scenario('many connections come and go', async (s) => {
  const connections = await Promise.all(numbers(50).map(() => s.connect()));
  const queues = await Promise.all(connections.map(async (connection) => {
    const channel = await s.another(connection);
    return (await channel.assertQueue('', { exclusive: true })).queue;
  }));
  assert.equal(new Set(queues).size, 50);
  await Promise.all(connections.map((connection) => soon('a closed connection', connection.close())));
  for (const queue of queues.slice(0, 3)) {
    const asking = await s.another();
    await closes(asking, () => { asking.checkQueue(queue).catch(() => {}); }, 404, /no queue/, 50, 10);
  }
});
