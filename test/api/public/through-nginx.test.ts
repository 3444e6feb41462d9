import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { skipsNginx, withoutNginx } from '../../fixtures/nginx.js';
import { serveFrom } from '../../fixtures/served-from.js';
import { TestSnapshot } from '../../fixtures/snapshot.js';

/** Suites of the public API, repeated with a server that reads its snapshot through nginx. */
const ELSEWHERE: Record<string, string> = {
  'through-nginx.test.ts': 'is this suite',
  'remote.test.ts': 'starts its own nginx',
  'remote-faults.test.ts': 'likewise',
  'http-source.test.ts': 'starts its own origin',
  'docs.test.ts': 'tests a document without a snapshot',
  'openapi.test.ts': 'likewise',
  'worked-examples.test.ts': 'likewise',
  'page-browser.test.ts': 'tests the browser',
};

const suites = readdirSync(import.meta.dirname).filter(
  (name) => name.endsWith('.test.ts') && !Object.hasOwn(ELSEWHERE, name),
);

// Runs every other public API suite against servers that read snapshots only through a real nginx.
describe.skipIf(skipsNginx)(`public API over nginx${withoutNginx}`, () => {
  if (skipsNginx) return;
  serveFrom('nginx');

  for (const name of suites) {
    describe(name, async () => {
      await import(join(import.meta.dirname, name));
    });
  }

  describe('suites', () => {
    const snapshot = new TestSnapshot();
    afterAll(() => snapshot.close());

    it('read snapshots only through nginx', async () => {
      const id = snapshot.registry.addProof();
      snapshot.registry.verify();
      await snapshot.publisher().runCycle();
      const { url } = await snapshot.serve(snapshot.publicServer());
      expect((await fetch(`${url}/api/public/verify/proof/${id}`)).status).toBe(200);
      await (await snapshot.nginx!).stop();
      expect((await fetch(`${url}/log/tile/0/000.p/2`)).status).toBe(503);
    });

    it('run unless listed as an exception', () => {
      expect(suites).toEqual(expect.arrayContaining(['lookup.test.ts', 'log.test.ts']));
    });
  });
});
