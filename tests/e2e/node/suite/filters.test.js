import assert from 'node:assert/strict';
import { refuses, scenario } from './broker.js';

/** A filter that names a field of the body; the same text stands on bindings and on consumers. */
const dear = "b.total > 50 AND land = 'UK'";
const broken = { 'x-filter': 'b.total >' };
const refusal = /invalid x-filter at character 10: expected a value after '>'/;

/** Publishes a JSON body for each total, with the header `land`. */
const order = (s, exchange, key, land, ...totals) =>
  s.send(exchange, key, totals.map((total) => JSON.stringify({ total })), { contentType: 'application/json', headers: { land } });

const totals = (bodies) => bodies.map((body) => JSON.parse(body).total);

scenario('a queue gets what the filter of its binding matches', async (s) => {
  const exchange = await s.exchange('topic');
  const matching = await s.bound(exchange, 'order.#', { 'x-filter': dear });
  const rest = await s.bound(exchange, 'order.#', { 'x-filter': `NOT (${dear})` });
  await order(s, exchange, 'order.1', 'UK', 51, 50);
  await order(s, exchange, 'order.1', 'FR', 52);
  await order(s, exchange, 'offer.1', 'UK', 53);
  assert.deepEqual(totals(await s.drain(matching)), [51]);
  assert.deepEqual(totals(await s.drain(rest)), [50, 52]);
});

scenario('a consumer gets what its filter matches, and the rest goes to another', async (s) => {
  const queue = await s.queue();
  const matching = await s.consume(queue, { noAck: true, arguments: { 'x-filter': dear } });
  await order(s, '', queue, 'UK', 50, 51);
  await order(s, '', queue, 'FR', 52);
  await order(s, '', queue, 'UK', 53);
  assert.deepEqual(totals(await matching.bodies(2)), [51, 53]);
  await s.quiet(matching);
  assert.equal(await s.depth(queue), 2);
  const rest = await s.consume(queue, { noAck: true });
  assert.deepEqual(totals(await rest.bodies(2)), [50, 52]);
});

scenario('a filter that is none says where', async (s) => {
  const queue = await s.queue();
  await refuses((await s.another()).bindQueue(queue, 'amq.fanout', '', broken), 406, refusal, 50, 20);
  await refuses((await s.another()).consume(queue, () => {}, { arguments: broken }), 406, refusal, 60, 20);
});
