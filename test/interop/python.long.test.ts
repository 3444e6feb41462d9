import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { toBase64, toBase64Url, toHex } from '#protocol/bytes';
import type { Evidence } from '#protocol/evidence/document';
import { idsOf } from '#protocol/ids';
import { jwkThumbprint } from '#protocol/keys';
import { BY_PATH } from '#protocol/lookup-routes';
import { nativeSha256 } from '#runtime/crypto/node';
import { ensureKeyActive } from '#sql/lifecycle/signing-keys';
import { scrub } from '#workers/verify/scrub';
import { openPublicStack, type PublicStack } from '../e2e/public-statuses/stack.js';
import {
  createPublicStates,
  RECENT_LOOKUP_LIMIT,
  type PublicStates,
} from '../e2e/public-statuses/states.js';
import { MALFORMED, STATUSES } from '../e2e/public-statuses/table.js';
import { alterations } from '../fixtures/altered.js';
import { withoutTriggers } from '../fixtures/database.js';
import { eraseProof } from '../fixtures/erase.js';
import { LOG_IDS } from '../fixtures/full-log.js';
import { ORIGIN } from '../fixtures/public-log.js';
import { fullLog } from '../fixtures/full-log.js';
import type { PublicLog } from '../fixtures/public-log.js';
import { hasPython, pythonLines, runPython } from '../fixtures/python.js';
import { randomLog, randomNumbers } from '../fixtures/random-log.js';
import { freshSigner, openRegistry } from '../fixtures/registry.js';

/**
 * The Python implementation is written from spec/ only, so a difference shows an error in spec/ or in an
 * implementation.
 */

interface Proved {
  answer?: unknown;
  outdated?: unknown;
  error?: string;
}
interface Rebuilt {
  map: [key: string, record: string, history: string][];
  snapshot: number | null;
}

const rebuild = (logs: readonly (readonly Uint8Array[])[]) =>
  pythonLines<Rebuilt>(
    'reducer.py',
    [],
    logs.map((entries) => ({ origin: ORIGIN, entries: entries.map((one) => toBase64(one)) })),
  );

const accepted = (results: readonly Proved[]) => results.filter(({ error }) => error === undefined);

/** Copies of the evidence, each with one change, which may be within a string value. */
const altered = (evidence: Evidence) => [...alterations(evidence)];

describe.runIf(hasPython)('Python', () => {
  it('rebuilds the maps of random logs', async () => {
    const logs: PublicLog[] = [];
    for (const numbers of fc.sample(randomNumbers, 60)) logs.push(await randomLog(numbers));
    const rebuilt = await rebuild(logs.map(({ entries }) => entries));
    for (const [i, { map, state }] of logs.entries()) {
      const values = [...map].map(([key, { record, history }]) => [
        key,
        toHex(record),
        toHex(history),
      ]);
      expect(rebuilt[i]).toMatchObject({
        map: values.sort(),
        snapshot: state.snapshot?.index ?? null,
      });
    }
  }, 120_000);

  it('verifies the evidence of the vectors, and rejects altered evidence', async () => {
    const now = '2026-11-22T08:32:00.000Z';
    const asked = fullLog.evidence.map((evidence) => ({
      evidence,
      now,
      identifier: /^[0-9a-f]{64}$/.test(evidence.identifier) ? LOG_IDS.token : evidence.identifier,
    }));
    const verify = (inputs: readonly { evidence: unknown }[]) =>
      pythonLines<Proved>(
        'evidence.py',
        [fullLog.log_vkey, '--lines'],
        inputs.map((one) => ({ ...one, evidence: JSON.stringify(one.evidence) })),
      );
    expect(accepted(await verify(asked))).toHaveLength(asked.length);
    const lies = asked.flatMap(({ evidence, ...rest }) =>
      altered(evidence).map(({ what, document }) => ({ ...rest, what, evidence: document })),
    );
    const results = await verify(lies.map(({ what: _, ...rest }) => rest));
    expect(lies.filter((_, i) => results[i]!.error === undefined)).toEqual([]);
  });
});

describe.runIf(hasPython)('Python on a running service', () => {
  let stack: PublicStack;
  let states: PublicStates;
  beforeAll(async () => {
    stack = await openPublicStack(RECENT_LOOKUP_LIMIT);
    states = await createPublicStates(stack, () => undefined);
    await addEvents(stack, states);
  }, 240_000);
  afterAll(() => stack.close());

  it('rebuilds the map from the snapshot directory and from the public log, and recomputes every answer about its proofs', async () => {
    const url = stack.urlOf('directory');
    const directory = await runPython('rebuild_map.py', [stack.logVkey, stack.directory]);
    const log = await runPython('rebuild_map.py', [stack.logVkey, url, '--answers', url]);
    const { differences, ...rebuilt } = JSON.parse(log) as { differences: unknown[] };
    expect(differences).toEqual([]);
    expect(rebuilt).toEqual(JSON.parse(directory));
    expect(rebuilt).toMatchObject({ ignored: {} });
  }, 240_000);

  it('proves each answer from its evidence, even for identifiers that do not resolve', async () => {
    const proofs = [...states.proofs.values()].flatMap((id) => Object.values({ ...idsOf(id) }));
    const malformed = MALFORMED.map((text) => text.replace('*', states.proofs.get('valid')!));
    const shares = [...states.packages.values(), ...states.tokens.values()];
    const asked = [...new Set([...proofs, ...shares, ...malformed])];
    const cases = await Promise.all(
      asked.map(async (identifier) => {
        const path = encodeURIComponent(identifier);
        const evidence = await stack.call('directory', { path: `/api/public/evidence/${path}` });
        expect(evidence.status).toBe(200);
        return Promise.all(
          ROUTES.map(async (route) => {
            const lookup = route === 'generic' ? `?identifier=${path}` : `/${route}/${path}`;
            const { json } = await stack.call('directory', { path: `/api/public/verify${lookup}` });
            return { identifier, route, evidence: evidence.bytes.toString(), json };
          }),
        );
      }),
    );
    const all = cases.flat();
    const proved = await pythonLines<Proved>(
      'evidence.py',
      [stack.logVkey, '--lines', '--max-age', '600'],
      all.map(({ json: _, ...one }) => one),
    );
    const wrong = all.map(({ evidence: _, ...one }, i) => ({ ...one, proved: proved[i]! }));
    expect(wrong.filter(({ json, proved }) => !isSame(proved.answer, json))).toEqual([]);
    const said = all.map(({ json }) => statusIn(json));
    expect([...new Set(said)].sort()).toEqual(STATUSES);
  }, 240_000);
});

const ROUTES = [...Object.keys(BY_PATH), 'generic'];

const isSame = (one: unknown, other: unknown): boolean => sorted(one) === sorted(other);
const sorted = (document: unknown): string =>
  JSON.stringify(document, (_, value: unknown) =>
    typeof value === 'object' && value !== null && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).sort())
      : value,
  );
const statusIn = (json: Record<string, unknown>): unknown =>
  ((json['verification'] ?? json) as Record<string, unknown>)['verification_status'];

/** Adds failed, restored and erased proofs, and replaces, retires and compromises keys. */
async function addEvents(stack: PublicStack, { acme, proofs }: PublicStates): Promise<void> {
  const { db, registry } = stack;
  const names = ['erased', 'erased, revoked', 'failed', 'restored', 'voided'];
  for (const name of names) proofs.set(name, await acme.execute());
  await stack.publish();
  const flipSalt = (name: string) =>
    withoutTriggers(
      db,
      `update svc.intake set seed = set_byte(seed, 5, get_byte(seed, 5) # 1)
        where proof_id = '${proofs.get(name)!}'::uuid`,
    );
  // The verifier checks urgent leaves first, so a full pass may take several calls.
  const scrubAll = async () => {
    for (let pass = 0; pass < 3; pass++) await scrub(registry.verify, 10_000);
  };
  await acme.revoke(proofs.get('erased, revoked')!, 'certificate');
  for (const name of ['erased', 'erased, revoked']) await eraseProof(db, proofs.get(name)!);
  for (const name of ['failed', 'restored']) await flipSalt(name);
  await scrubAll();
  await stack.publish();
  await flipSalt('restored');
  await scrubAll();
  await stack.publish();

  const signer = freshSigner();
  const keyId = jwkThumbprint(nativeSha256, signer.publicKey);
  const publicKey = toBase64Url(signer.publicKey);
  await ensureKeyActive(registry.admin, { keyId, publicKey });
  const { admit, tenantNo } = registry;
  const existing = { admit: { ...admit, signer, keyId }, tenantNo };
  const rotated = await openRegistry(db, { existing });
  const [byNewKey] = await rotated.admitAll([rotated.item()]);
  proofs.set('by the new key', byNewKey!);
  await registry.changeKey('retire');
  const [{ leaf_index: fromIndex } = { leaf_index: 0 }] = await db.sql<{ leaf_index: number }[]>`
    select leaf_index::int from svc.log_entry where proof_id = ${proofs.get('voided')!}::uuid`;
  await registry.changeKey('compromise', fromIndex);
  await stack.publish();
  const statuses = [...names, 'by the new key'].map(async (name) => [
    name,
    await stack.statusOf('directory', `/proof/${proofs.get(name)!}`),
  ]);
  expect(Object.fromEntries(await Promise.all(statuses))).toEqual({
    erased: 'BACKEND_LOOKUP_REQUIRED',
    'erased, revoked': 'BACKEND_LOOKUP_REQUIRED',
    failed: 'BACKEND_LOOKUP_REQUIRED',
    restored: 'VALID',
    voided: 'BACKEND_LOOKUP_REQUIRED',
    'by the new key': 'VALID',
  });
}
