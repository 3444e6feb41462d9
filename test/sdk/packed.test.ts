import { existsSync } from 'node:fs';
import { cp, readFile, writeFile } from 'node:fs/promises';
import { request as httpRequest } from 'node:http';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { chromium } from 'playwright-core';
import { rolldown } from 'rolldown';
import ts from 'typescript';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import { packageRoot } from '#runtime/process/files';
import { chromiumArgs, chromiumPath, withoutChromium } from '../fixtures/chromium.js';
import { serveLocally, type LocalServer } from '../fixtures/local-server.js';
import { offlineVectors } from '../fixtures/offline-vectors/published.js';
import { packSdk } from '../fixtures/packed-sdk.js';
import { openSdkWorld, type SdkWorld } from '../fixtures/sdk-world.js';

/** Path of a second Node executable; `.ci/run` sets the LTS release. */
const OTHER_NODE = process.env['NODE_LTS'] ?? '';
const hasOtherNode = existsSync(OTHER_NODE);
const inCi = process.env['CI'] !== undefined;

const vectors = Object.values(offlineVectors).flat();
const expected = Object.fromEntries(vectors.map((vector) => [vector.name, vector.expected]));

let world: SdkWorld;
let project: Awaited<ReturnType<typeof packedProject>>;
let stopped = false;
let publishing: Promise<void>;

beforeAll(async () => {
  project = await packedProject();
  world = await openSdkWorld();
  // openSdkWorld starts no verifier and no publisher, so the test verifies and publishes.
  publishing = (async () => {
    while (!stopped) {
      await world.registry.verifyAll();
      await world.log.publish();
      await sleep(50);
    }
  })();
}, 120_000);
afterAll(async () => {
  stopped = true;
  await publishing;
  await world?.close();
});

interface Outcome {
  node?: string;
  live: { proofId: string } & Record<string, unknown>;
  outcomes: Record<string, unknown>;
}

const settings = (engineUrl: string, intentId: string) => ({
  engine: { ...world.options, engineUrl },
  trust: {
    aepKeys: [toBase64Url(world.registry.admit.signer.publicKey)],
    log: { vkey: world.log.vkey, origin: world.log.origin },
  },
  intentId,
  vectors,
});

function expectEverything({ live, outcomes }: Outcome): void {
  expect(live).toEqual({
    proofId: expect.stringMatching(/^[0-9a-f]{32}$/) as string,
    receiptStatus: 'ADMITTED',
    read: live.proofId,
    offline: {
      authentic: true,
      included: true,
      status: expect.stringMatching(/^unknown since checkpoint [1-9]/) as string,
      action: 'BOOK_RESERVATION',
    },
    tlogProof: true,
    forged: 'payload_mismatch',
    unpinned: 'no_pinned_key',
    denied: 'policy_denied',
  });
  expect(outcomes).toEqual(expected);
}

async function inNode(node: string): Promise<Outcome> {
  const file = join(project.dir, 'settings.json');
  await writeFile(file, JSON.stringify(settings(world.engine.url, `packed-${node}`)));
  return JSON.parse(await project.node('in-node.js', [file], node)) as Outcome;
}

describe('packed SDK in an empty project', () => {
  it('admits, reads, and verifies all vectors in the current Node version', async () => {
    const outcome = await inNode(process.execPath);
    expect(outcome.node).toBe(process.version);
    expectEverything(outcome);
  }, 120_000);

  const which = hasOtherNode ? '' : ' (skipped: NODE_LTS names no Node)';
  it.skipIf(!hasOtherNode && !inCi)(
    `admits, reads, and verifies all vectors in the LTS version of Node${which}`,
    async () => {
      const outcome = await inNode(OTHER_NODE);
      expect(outcome.node).toBe((await project.node('--version', [], OTHER_NODE)).trim());
      expectEverything(outcome);
    },
    120_000,
  );

  it.skipIf(chromiumPath === null && !inCi)(
    `admits, reads, and verifies all vectors when bundled for a browser${withoutChromium}`,
    async () => {
      const page = await serveConsumerPage(await project.bundle('in-browser.js'), world.engine.url);
      const browser = await chromium.launch({ executablePath: chromiumPath!, args: chromiumArgs });
      try {
        const tab = await browser.newPage();
        const errors: string[] = [];
        const requests = new Set<string>();
        tab.on('pageerror', (error) => errors.push(error.message));
        tab.on('console', (message) => {
          // The browser logs "Failed to load" for expected responses: 403 for a denial, 409 for a pending verdict.
          if (!message.text().startsWith('Failed to load')) errors.push(message.text());
        });
        tab.on('request', (request) => requests.add(new URL(request.url()).origin));
        await tab.goto(page.url);
        const outcome = await tab.evaluate(
          (given) =>
            (globalThis as unknown as { everything(given: unknown): Promise<Outcome> }).everything(
              given,
            ),
          settings(page.url, 'packed-browser'),
        );
        expectEverything(outcome);
        expect([...requests]).toEqual([page.url]);
        expect(errors).toEqual([]);
      } finally {
        await browser.close();
        await page.close();
      }
    },
    120_000,
  );
});

/** A project with the packed SDK and the files of `test/consumer`. */
async function packedProject() {
  const sdk = await packSdk();
  const dir = sdk.directory;
  await cp(join(packageRoot, 'test', 'consumer'), dir, { recursive: true });
  const helper = join(packageRoot, 'test', 'fixtures', 'offline-vectors', 'vector.ts');
  const compilerOptions = { target: ts.ScriptTarget.ES2023, module: ts.ModuleKind.ESNext };
  const compiled = ts.transpileModule(await readFile(helper, 'utf8'), { compilerOptions });
  await sdk.write('vector.js', compiled.outputText);
  return {
    dir,
    /** Runs a script of the project in this Node or another, and returns its output. */
    node: (script: string, args: string[] = [], node = process.execPath) =>
      sdk.run(node, [script, ...args]),
    /** The script and its imports, bundled for browsers. */
    bundle: (script: string) => bundled(dir, script),
  };
}

/** Bundles `input` with the bundler's defaults for browsers; a warning, such as for a Node module, is an error. */
async function bundled(cwd: string, input: string): Promise<string> {
  const bundle = await rolldown({
    cwd,
    input,
    platform: 'browser',
    onLog: (_level, log) => {
      throw new Error(log.message);
    },
  });
  const { output } = await bundle.generate({ format: 'esm' });
  await bundle.close();
  if (output.length !== 1) throw new Error('expected one file');
  return output[0].code;
}

/**
 * A tenant's page with its script. The page's server forwards to the engine, which allows no other
 * origin. The page's policy allows its own script and origin, but no eval.
 */
function serveConsumerPage(script: string, engineUrl: string): Promise<LocalServer> {
  const headers = {
    'Content-Security-Policy': "default-src 'none'; script-src 'self'; connect-src 'self'",
  };
  return serveLocally((incoming, outgoing) => {
    if (incoming.url?.startsWith('/v1/')) {
      const target = new URL(incoming.url, engineUrl);
      const { method, headers: asked } = incoming;
      const forwarded = httpRequest(target, { method, headers: { ...asked, host: target.host } });
      forwarded.on('response', (answer) => {
        outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
        answer.pipe(outgoing);
      });
      forwarded.on('error', () => {
        if (outgoing.headersSent) outgoing.destroy();
        else outgoing.writeHead(502).end();
      });
      incoming.pipe(forwarded);
    } else if (incoming.url === '/script.js') {
      outgoing.writeHead(200, { ...headers, 'Content-Type': 'text/javascript' }).end(script);
    } else if (incoming.url === '/') {
      outgoing
        .writeHead(200, { ...headers, 'Content-Type': 'text/html; charset=utf-8' })
        .end(
          '<!doctype html><title>consumer</title><script type="module" src="/script.js"></script>',
        );
    } else {
      outgoing.writeHead(404).end();
    }
  });
}
