import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { skipsNginx, withoutNginx } from '../../fixtures/nginx.js';
import { serveFrom } from '../../fixtures/served-from.js';
import { TestSnapshot } from '../../fixtures/snapshot.js';

/** Suites of the public API that say nothing more when their facade is fed through nginx. */
const ELSEWHERE: Record<string, string> = {
  'through-nginx.test.ts': 'this one',
  'remote.test.ts': 'has an nginx of its own',
  'remote-faults.test.ts': 'likewise',
  'http-source.test.ts': 'has an origin of its own',
  'docs.test.ts': 'is about a document that no snapshot has a part in',
  'openapi.test.ts': 'likewise',
  'worked-examples.test.ts': 'likewise',
  'page-browser.test.ts': 'is about what a browser makes of the page',
};

const suites = readdirSync(import.meta.dirname).filter(
  (name) => name.endsWith('.test.ts') && !Object.hasOwn(ELSEWHERE, name),
);

// Every other suite of the public API, as it is written, against facades that have nothing but
// what a real nginx sends them.
describe.skipIf(skipsNginx)(`the public API over nginx${withoutNginx}`, () => {
  if (skipsNginx) return;
  serveFrom('nginx');

  for (const name of suites) {
    describe(name, async () => {
      await import(join(import.meta.dirname, name));
    });
  }

  describe('what is fed in this way', () => {
    const snapshot = new TestSnapshot();
    afterAll(() => snapshot.close());

    it('comes from nginx and from nowhere else', async () => {
      const id = snapshot.registry.addProof();
      snapshot.registry.verify();
      await snapshot.publisher().runCycle();
      const { url } = await snapshot.serve(snapshot.facade());
      expect((await fetch(`${url}/api/public/verify/proof/${id}`)).status).toBe(200);
      await (await snapshot.nginx!).stop();
      expect((await fetch(`${url}/log/tile/0/000.p/2`)).status).toBe(503);
    });

    it('is every suite that is not named as one of no use here', () => {
      expect(suites).toEqual(expect.arrayContaining(['lookup.test.ts', 'log.test.ts']));
    });
  });
});
