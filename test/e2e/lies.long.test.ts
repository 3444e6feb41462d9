import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium, type Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { MapValue } from '#protocol/map/page';
import { lookupHttp, type LookupQuery } from '#sdk/index';
import { chromiumArgs, chromiumPath, withoutChromium } from '../fixtures/chromium.js';
import { everything, LyingServer, type Served, type Sources } from '../fixtures/lying-server.js';
import { MAP_LIES } from '../fixtures/map-lies.js';
import { proofIdOf } from '../fixtures/public-log.js';
import { ServedLog } from '../fixtures/served-log.js';
import { svc } from '../fixtures/svc.js';

/**
 * The step at which each client detects each false answer of a public API, mirror or cache. Only an operator with all
 * keys can cause the lies of the last two rows. `no`: this client cannot detect the lie.
 */
const TABLE = `
  lie                                  | SDK      | svc      | page        | monitor
  REVOKED as VALID                     | at once  | at once  | at once     | no
  VALID as NOT_FOUND                   | at once  | at once  | at once     | no
  NOT_FOUND as VALID                   | at once  | at once  | at once     | no
  a package without its revoked member | at once  | at once  | at once     | no
  evidence of another log              | at once  | at once  | at once     | no
  another log                          | at once  | at once  | at once     | next poll
  the newest entries hidden            | max age  | max age  | valid until | next poll
  a false map in the log               | no       | no       | no          | next poll
  another log under the same key       | no       | no       | no          | next poll
`;
type Client = 'SDK' | 'svc' | 'page' | 'monitor';
type Detection = 'at once' | 'max age' | 'valid until' | 'next poll' | 'no';
type Row = Record<Client, Detection> & { lie: string };
const ROWS: Row[] = (() => {
  const [names, ...rows] = TABLE.trim()
    .split('\n')
    .map((line) => line.split('|').map((cell) => cell.trim()));
  return rows.map((row) => Object.fromEntries(row.map((cell, at) => [names![at]!, cell])) as Row);
})();

const MINUTE = 60_000;
const [valid, revoked, absent] = [proofIdOf(0), proofIdOf(2), proofIdOf(99)] as const;
const PACKAGE = `pkg_${proofIdOf(1000)}`;

/** A log with the same proofs, signed with keys that are not the service's. */
async function forged(
  lie: (values: Map<string, MapValue>) => void,
  members = [valid, revoked],
): Promise<Served> {
  const log = await ServedLog.open({ isLive: true });
  log.addPackage(PACKAGE, members);
  await log.snapshotAll(lie);
  return server.serve(log);
}

let honest: Served;
let lies: Record<string, { query: LookupQuery; sources: Partial<Sources> }>;
let server: LyingServer;
let browser: Browser;
let home: string;

beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'svc-lies-'));
  const log = await ServedLog.open({ isLive: true, openedAt: Date.now() - 5 * MINUTE });
  log.addPackage(PACKAGE, [valid, revoked]);
  await log.snapshotAll();
  server = await LyingServer.open(log.keys.log.vkey);
  const earlier = await server.serve(log);
  log.openedAt = Date.now() - MINUTE;
  await log.append(log.proof(5, log.keys.aep));
  await log.snapshotAll();
  honest = await server.serve(log);
  await log.snapshotAll(MAP_LIES.absentProof);
  const falseMap = await server.serve(log);
  const other = await forged(() => undefined);
  const fork = await ServedLog.open({ isLive: true, keys: log.keys });
  await fork.snapshotAll(MAP_LIES.absentProof);
  const forked = await server.serve(fork);

  const ofValid = { kind: 'proof', identifier: valid } as const;
  const answers = async (...lie: Parameters<typeof forged>) => ({ answers: await forged(...lie) });
  lies = {
    'REVOKED as VALID': {
      query: { kind: 'proof', identifier: revoked },
      sources: await answers(MAP_LIES.validForRevoked),
    },
    'VALID as NOT_FOUND': {
      query: ofValid,
      sources: await answers(MAP_LIES.absentProof),
    },
    'NOT_FOUND as VALID': {
      query: { kind: 'proof', identifier: absent },
      sources: await answers(MAP_LIES.inventedProof),
    },
    'a package without its revoked member': {
      query: { kind: 'package', identifier: PACKAGE },
      sources: await answers(() => undefined, [valid]),
    },
    'evidence of another log': { query: ofValid, sources: { evidence: other } },
    'another log': { query: ofValid, sources: everything(other) },
    'the newest entries hidden': { query: ofValid, sources: everything(earlier) },
    'a false map in the log': { query: ofValid, sources: everything(falseMap) },
    'another log under the same key': { query: ofValid, sources: everything(forked) },
  };
  if (chromiumPath !== null)
    browser = await chromium.launch({ executablePath: chromiumPath, args: chromiumArgs });
}, 120_000);
afterAll(async () => {
  await browser?.close();
  await server?.close();
});

/** Whether a client rejects the answer of the server. */
type Detects = (query: LookupQuery, limit?: 'max age' | 'valid until') => Promise<boolean>;
const MAX_AGE_MS = 3 * MINUTE;

const detects: Record<Exclude<Client, 'monitor'>, Detects> = {
  SDK: async (query, limit) => {
    const { vkey } = honest.log.keys.log;
    const pins = { vkey, origin: vkey.split('+')[0]! };
    const maxAgeMs = limit === undefined ? {} : { maxAgeMs: MAX_AGE_MS };
    const codes = ['evidence_rejected', 'evidence_outdated'];
    try {
      await lookupHttp({ publicUrl: server.url, pins, ...maxAgeMs }, query);
      return false;
    } catch (error) {
      expect(codes).toContain((error as { code: string }).code);
      return true;
    }
  },
  svc: async ({ identifier }, limit) => {
    const maxAge = limit === undefined ? [] : ['--max-age', String(MAX_AGE_MS / 1000)];
    const args = ['lookup', identifier, '--log-vkey', honest.log.keys.log.vkey, ...maxAge];
    const { stdout, stderr } = await svc(args, { env: { SVC_PUBLIC_URL: server.url } });
    return stdout === '' && stderr.includes('evidence');
  },
  page: async ({ identifier }, limit) => {
    const context = await browser.newContext();
    const page = await context.newPage();
    if (limit === 'valid until') await page.clock.setFixedTime(Date.now() + 10 * MINUTE);
    const { vkey } = honest.log.keys.log;
    await page.addInitScript(`localStorage.setItem('svc-log-vkey', '${vkey}')`);
    await page.goto(`${server.url}/?id=${identifier}`);
    const result = page.locator('#evidence-result > :has(p):not(:has-text("Verifying with"))');
    const text = await result.innerText();
    await context.close();
    expect(text).toMatch(/^(?:Verified|Not verified) in your browser with key /);
    return text.startsWith('Not verified');
  },
};

/** Whether a monitor that has polled the honest log raises an alarm at its next poll. */
async function monitorDetects(lie: Partial<Sources>, name: string): Promise<boolean> {
  const look = () =>
    svc(
      ['monitor', server.url, '--log-vkey', honest.log.keys.log.vkey, '--state', name, '--once'],
      { cwd: home },
    );
  server.sources = everything(honest);
  expect((await look()).code).toBe(0);
  Object.assign(server.sources, lie);
  const { code } = await look();
  return code === 1;
}

describe(`readers of a lying public API${withoutChromium}`, () => {
  const clients = (['SDK', 'svc', 'page'] as const).filter(
    (client) => client !== 'page' || chromiumPath !== null || process.env['CI'] !== undefined,
  );

  it('accept honest answers; the table has a row for each lie', async () => {
    expect(ROWS.map(({ lie }) => lie)).toEqual(Object.keys(lies));
    server.sources = everything(honest);
    for (const identifier of [valid, revoked, absent]) {
      const query = { kind: 'proof', identifier } as const;
      for (const client of clients) {
        expect([client, await detects[client](query, 'max age')]).toEqual([client, false]);
      }
    }
  });

  it.each(ROWS)(
    'detect "$lie": SDK $SDK, svc $svc, page $page, monitor $monitor',
    async (row) => {
      const lie = lies[row.lie]!;
      server.sources = { ...everything(honest), ...lie.sources };
      for (const client of clients) {
        const when = row[client];
        expect([client, await detects[client](lie.query)]).toEqual([client, when === 'at once']);
        if (when !== 'max age' && when !== 'valid until') continue;
        expect([client, await detects[client](lie.query, when)]).toEqual([client, true]);
      }
      expect(await monitorDetects(lie.sources, row.lie)).toBe(row.monitor === 'next poll');
    },
    60_000,
  );
});
