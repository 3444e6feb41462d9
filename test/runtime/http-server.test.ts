import express from 'express';
import { expect, it } from 'vitest';
import { listen } from '#runtime/http/server';

it('listen > names the setting when the address is not one of this host', async () => {
  const elsewhere = listen(() => undefined, { host: '192.0.2.1', port: 0 });
  await expect(elsewhere).rejects.toThrow('set LISTEN_ADDRESS');
});

it("listen > uses a framework's message prototypes only on Node versions that benefit", async () => {
  const app = express();
  const made: boolean[] = [];
  app.use(express.json());
  app.post('/echo/:name', (req, res) => {
    res.status(201).json({ name: req.params.name, body: req.body as unknown });
  });
  const server = await listen(
    (req, res) => {
      // Checked before Express runs: changing a prototype later slows every property access.
      made.push(Object.getPrototypeOf(req) === app.request);
      made.push(Object.getPrototypeOf(res) === app.response);
      app(req, res);
    },
    { host: '127.0.0.1', port: 0, messages: app },
  );
  const response = await fetch(`${server.url}/echo/a`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: '{"b":1}',
  });
  expect(response.status).toBe(201);
  expect(await response.json()).toEqual({ name: 'a', body: { b: 1 } });
  const benefits = Number.parseInt(process.versions.node) < 24;
  expect(made).toEqual([benefits, benefits]);
  await server.close(0);
});
