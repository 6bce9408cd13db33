// What every test needs: a connection of its own, fresh names, and waiting without guessing how long.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import net from 'node:net';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import amqp from 'amqplib';

/** The broker under test. */
export const address = process.env.LEPUS_URI || 'amqp://guest:guest@127.0.0.1:5672/';

/** After this many milliseconds something that should have happened counts as missing. */
export const patience = 60_000;

/** A name that no other test, run or suite uses. */
export const unique = (kind) => `e2e.${kind}.${randomUUID()}`;

/** The numbers from 0 to `count` - 1 as bodies. */
export const numbers = (count) => Array.from({ length: count }, (_, at) => String(at));

export const text = (message) => message.content.toString();

/** Waits for a promise, but not for ever. */
export async function soon(what, promise) {
  const given = new AbortController();
  try {
    return await Promise.race([
      promise,
      pause(patience, null, { signal: given.signal }).then(() => assert.fail(`nothing after ${patience} ms: ${what}`)),
    ]);
  } finally {
    given.abort();
  }
}

/** Asks until the answer is neither false nor undefined, and returns it. */
export async function until(what, question) {
  for (const deadline = Date.now() + patience; Date.now() < deadline; await pause(10)) {
    const answer = await question();
    if (answer !== false && answer !== undefined) return answer;
  }
  return assert.fail(`still not so after ${patience} ms: ${what}`);
}

/** Checks the code, the words and, when they are given, the class and method of what the broker refused. */
export function assertRefusal(error, code, words, classId, methodId) {
  assert.match(error.message, words);
  assert.equal(error.code, code, error.message);
  if (classId !== undefined) assert.deepEqual([error.classId, error.methodId], [classId, methodId], error.message);
}

/** The broker must refuse the request that this promise stands for. */
export async function refuses(promise, ...refusal) {
  const error = await soon('a refusal', promise.then(() => assert.fail('the broker agreed'), (reason) => reason));
  assertRefusal(error, ...refusal);
}

/** The broker must close this channel or connection for what the action does, sooner or later. */
export async function closes(emitter, action, ...refusal) {
  const failed = new Promise((resolve) => emitter.once('error', resolve));
  const closed = new Promise((resolve) => emitter.once('close', resolve));
  await action();
  const error = await soon('an error', failed);
  await soon('the end', closed);
  assertRefusal(error, ...refusal);
}

/** Values that come when they want, taken one by one. */
export class Inbox {
  #values = [];
  #waiting = [];

  put(value) {
    const waiting = this.#waiting.shift();
    if (waiting) waiting(value);
    else this.#values.push(value);
  }

  /** The next value. */
  next() {
    if (this.#values.length > 0) return Promise.resolve(this.#values.shift());
    return soon('the next value', new Promise((resolve) => this.#waiting.push(resolve)));
  }

  /** The next `count` values. */
  async take(count) {
    const taken = [];
    while (taken.length < count) taken.push(await this.next());
    return taken;
  }

  /** Bodies of the next `count` messages. */
  async bodies(count) {
    return (await this.take(count)).map(text);
  }

  /** How many values wait to be taken. */
  get length() {
    return this.#values.length;
  }
}

const listensToErrors = (emitter) => emitter.on('error', () => {});

/** A test's connections; `channel` is the first channel of the first one. */
export class Session {
  #endings = [];

  static async open() {
    const session = new Session();
    session.connection = await session.connect();
    session.channel = await session.another();
    return session;
  }

  /** Runs when the test is over. */
  after(ending) {
    this.#endings.unshift(ending);
  }

  async end() {
    for (const ending of this.#endings) {
      try {
        await ending();
      } catch {
        // The test has closed it itself, or the broker has.
      }
    }
  }

  async connect(options, uri = address) {
    const connection = await soon('a connection', amqp.connect(uri, options));
    listensToErrors(connection);
    this.after(() => connection.close());
    return connection;
  }

  /** Another channel, of the same connection unless another one is given. */
  async another(connection = this.connection) {
    return listensToErrors(await soon('a channel', connection.createChannel()));
  }

  /** Another channel of another connection. */
  async elsewhere(options) {
    return this.another(await this.connect(options));
  }

  /** A channel whose publishes are confirmed. */
  async confirming(connection = this.connection) {
    return listensToErrors(await soon('a channel', connection.createConfirmChannel()));
  }

  /** A fresh exclusive queue. */
  async queue(options) {
    return (await this.channel.assertQueue('', { exclusive: true, durable: false, ...options })).queue;
  }

  /** A fresh durable queue, deleted after the test. */
  async durable(options) {
    const { queue } = await this.channel.assertQueue(unique('queue'), options);
    this.after(async () => {
      const sweeping = await amqp.connect(address);
      await (await sweeping.createChannel()).deleteQueue(queue);
      await sweeping.close();
    });
    return queue;
  }

  /** A fresh exchange that goes with its last binding. */
  async exchange(type, options) {
    const { exchange } = await this.channel.assertExchange(unique('exchange'), type, {
      durable: false,
      autoDelete: true,
      ...options,
    });
    return exchange;
  }

  /** A fresh queue bound to an exchange. */
  async bound(exchange, key = '', bindingArguments = undefined) {
    const queue = await this.queue();
    await this.channel.bindQueue(queue, exchange, key, bindingArguments);
    return queue;
  }

  /** Publishes and returns once every message is confirmed. */
  async send(exchange, key, bodies, options) {
    const channel = await this.confirming();
    for (const body of bodies) channel.publish(exchange, key, Buffer.from(body), options);
    await soon('confirms', channel.waitForConfirms());
    await channel.close();
  }

  /** Publishes to a queue by its name. */
  fill(queue, ...bodies) {
    return this.send('', queue, bodies);
  }

  /** The next message; it must be there by now. */
  async take(queue, options) {
    const message = await soon(`a message of ${queue}`, this.channel.get(queue, options));
    assert.ok(message, `no message in ${queue}`);
    return message;
  }

  /** The next message, waiting until there is one. */
  arrived(queue) {
    return until(`a message in ${queue}`, () => this.channel.get(queue, { noAck: true }));
  }

  /** Bodies of everything that is ready. */
  async drain(queue) {
    const bodies = [];
    for (;;) {
      const message = await this.channel.get(queue, { noAck: true });
      if (!message) return bodies;
      bodies.push(text(message));
    }
  }

  /** Number of ready messages. */
  async depth(queue) {
    return (await this.channel.checkQueue(queue)).messageCount;
  }

  /** Starts a consumer; its messages, and null for a notification that it is cancelled, come into the inbox. */
  async consume(queue, options, channel = this.channel) {
    const inbox = new Inbox();
    const { consumerTag } = await channel.consume(queue, (message) => inbox.put(message), options);
    inbox.consumerTag = consumerTag;
    return inbox;
  }

  /** Waits until the broker has handled everything sent on a channel. */
  roundTrip(channel = this.channel) {
    return soon('an answer', channel.checkExchange('amq.direct'));
  }

  /** Nothing came before the broker answered a request on the same channel. */
  async quiet(inbox, channel = this.channel) {
    await this.roundTrip(channel);
    assert.equal(inbox.length, 0, 'a delivery too many');
  }

  /** Whether the broker is the Erlang one, where some features are plugins that may be off. */
  get onErlang() {
    return this.#properties.platform.startsWith('Erlang');
  }

  /** Whether the broker is the Erlang one before version 4. */
  get isOldErlang() {
    return this.onErlang && Number.parseInt(this.#properties.version, 10) < 4;
  }

  get #properties() {
    return this.connection.connection.serverProperties;
  }
}

/** A test with a session of its own. Its body gets the session and node's test context. */
export function scenario(name, body) {
  test(name, { timeout: 3 * patience }, async (context) => {
    const session = await Session.open();
    try {
      await body(session, context);
    } finally {
      await session.end();
    }
  });
}

/** A TCP relay in front of the broker whose connections can be cut as a bad network does. */
export class Relay {
  #sockets = new Set();

  static async start(session) {
    const relay = new Relay();
    const broker = new URL(address);
    const server = net.createServer((client) => {
      const upstream = net.connect(Number(broker.port || 5672), broker.hostname);
      for (const [from, to] of [[client, upstream], [upstream, client]]) {
        relay.#sockets.add(from);
        from.on('error', () => {});
        from.on('close', () => {
          relay.#sockets.delete(from);
          to.destroy();
        });
        from.pipe(to);
      }
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const uri = new URL(address);
    uri.hostname = '127.0.0.1';
    uri.port = server.address().port;
    relay.uri = uri.href;
    session.after(() => {
      server.close();
      relay.cut();
    });
    return relay;
  }

  /** Ends every connection that runs through the relay, without a word of AMQP. */
  cut() {
    for (const socket of this.#sockets) socket.destroy();
  }
}
