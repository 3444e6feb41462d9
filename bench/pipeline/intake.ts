import { hash } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import express, { type ErrorRequestHandler } from 'express';
import { executeRequestSchema } from '#protocol/schemas/execute';
import { EXECUTE_PATH } from '../singles/execute-load.js';
import { GroupCommit } from './group-commit.js';
import { announce, listenTo, runStage, stopping } from './stage.js';
import { insertAccepted, type Accepted } from './tables.js';

/**
 * Entry point of the first stage: it takes in executions, one by one as the Express echo does, and
 * batches of lines, and answers when they are committed; an execution when it is signed as well.
 */

/** Rows of one insert: more is no cheaper. */
const MOST = 2_500;

runStage(async (sql, _task, serves) => {
  let seq = 0;
  const commit = new GroupCommit<Accepted>(async (accepted) => {
    for (let at = 0; at < accepted.length; at += MOST) {
      const part = accepted.slice(at, at + MOST);
      await insertAccepted(sql, part);
      await announce(sql, 'bench_accepted', part.at(-1)?.seq ?? 0);
    }
  });
  const acceptedOf = (request: Buffer): Accepted => ({
    seq: ++seq,
    // The same bytes are the same request: what is sent twice is refused, and not done twice.
    id: hash('sha256', request, 'hex').slice(0, 32),
    request,
  });

  /** Executions that wait for their signature, in the order in which they were accepted. */
  const waiting: { seq: number; signed: () => void }[] = [];
  await listenTo(sql, 'bench_signed', (payload) => {
    const upTo = Number(payload);
    while ((waiting[0]?.seq ?? Infinity) <= upTo) waiting.shift()?.signed();
  });

  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');
  const bodies = new WeakMap<object, Buffer>();
  app.use(EXECUTE_PATH, express.json({ verify: (req, _res, body) => void bodies.set(req, body) }));
  app.post(EXECUTE_PATH, async (req, res) => {
    const { success } = executeRequestSchema.safeParse(req.body);
    const body = bodies.get(req);
    if (!success || body === undefined) {
      res.status(400).json({ code: 'invalid_body' });
      return;
    }
    const accepted = acceptedOf(body);
    const signed = new Promise<void>((resolve) => {
      waiting.push({ seq: accepted.seq, signed: resolve });
    });
    await commit.add([accepted]);
    await signed;
    res.json({ seq: accepted.seq, request_id: accepted.id });
  });
  app.post('/v1/batches', async (req, res) => {
    const chunks: Buffer[] = [];
    for await (const chunk of req) chunks.push(chunk as Buffer);
    const items = linesOf(Buffer.concat(chunks)).map((line) => {
      JSON.parse(line.toString('latin1'));
      return acceptedOf(line);
    });
    await commit.add(items);
    res.status(202).json({ batch_id: String(items[0]?.seq) });
  });

  const refuse: ErrorRequestHandler = (error, _req, res, _next) => {
    res.status(500).json({ code: String(error) });
  };
  app.use(refuse);

  const server = createServer(app);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  serves(`http://127.0.0.1:${String((server.address() as AddressInfo).port)}`);
  await new Promise((resolve) => stopping.signal.addEventListener('abort', resolve));
  server.closeAllConnections();
  server.close();
});

function linesOf(body: Buffer): Buffer[] {
  const lines: Buffer[] = [];
  for (let at = 0; at < body.length;) {
    const end = body.indexOf(0x0a, at);
    const to = end < 0 ? body.length : end;
    if (to > at) lines.push(body.subarray(at, to));
    at = to + 1;
  }
  return lines;
}
