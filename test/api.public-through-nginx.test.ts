import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { skipsNginx, withoutNginx } from './helpers/nginx.js';
import { serveFrom } from './helpers/served-from.js';
import { TestSnapshot } from './helpers/snapshot.js';

/** Suites of the public API that say nothing more when their facade is fed through nginx. */
const ELSEWHERE: Record<string, string> = {
  'api.public-through-nginx.test.ts': 'this one',
  'api.public-remote.test.ts': 'has an nginx of its own',
  'api.public-remote-faults.test.ts': 'likewise',
  'api.public-http-source.test.ts': 'has an origin of its own',
  'api.public-docs.test.ts': 'is about a document that no snapshot has a part in',
  'api.public-openapi.test.ts': 'likewise',
  'api.public-worked-examples.test.ts': 'likewise',
  'api.public-page-browser.test.ts': 'is about what a browser makes of the page',
};

const suites = readdirSync(import.meta.dirname).filter(
  (name) => /^api\.public-.*\.test\.ts$/.test(name) && !Object.hasOwn(ELSEWHERE, name),
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
      expect(suites).toEqual(
        expect.arrayContaining(['api.public-lookup.test.ts', 'api.public-log.test.ts']),
      );
    });
  });
});
