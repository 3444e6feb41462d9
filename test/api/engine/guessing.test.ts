import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { OPERATIONS } from '#api/public/operations';
import { fromBase64, toHex } from '#protocol/bytes';
import { commitmentTo, saltsFrom, type SaltOf } from '#protocol/commitments';
import { attempt } from '#protocol/errors';
import { documentHash, hashHex } from '#protocol/hash';
import { ID_PREFIX } from '#protocol/ids';
import { policyInputText } from '#protocol/policy-input';
import { utf8 } from '#protocol/bytes';
import { nativeSha256 } from '#runtime/crypto/node';
import { admissionEnvelope, closeEnvelope, newRunId } from '../../fixtures/agent.js';
import { activateApprovalSet, refund } from '../../fixtures/approval-world.js';
import { TENANT } from '../../fixtures/registry.js';
import { SqlSnapshot } from '../../fixtures/sql-publisher.js';
import { engineTest, type Setup } from './setup.js';

const it = engineTest();

/** The amounts that a guesser tries. */
const AMOUNTS = Array.from({ length: 30 }, (_, n) => `${String(n + 130)}.00`);
const SECRET = '148.00';
const FILLED = /\{(\w+)\}/g;

it('a withheld amount cannot be guessed from a disclosed export, a run and the public answers', async ({
  setup,
}) => {
  const { db, registry } = setup;
  const snapshot = new SqlSnapshot(db);
  try {
    await activateApprovalSet(registry);
    const run = newRunId();
    const proofId = await admitted(setup, run);
    await setup.post('/v1/agent/admissions', closeEnvelope({ id: run, seq: 1 }));
    const ids = await shared(setup, proofId);
    await registry.reportAll();
    await snapshot.publishOnce();
    const answers = [
      await fetched(setup, `/v1/proofs/${proofId}/export?disclose=currency,request_hash`),
      await fetched(setup, `/v1/runs/${run}/package?agent=agent-7`),
      ...(await publicAnswers(snapshot, ids)),
    ];
    const files = filesBelow(snapshot.directory);
    expect(files.length).toBeGreaterThan(5);
    const known = digestsIn([...answers, ...files]);
    expect(guess(known, [...known])).toBeNull();
    // With a salt, which only the service has, the same search finds the amount.
    const salts = await saltsOf(setup, proofId);
    for (const name of ['fact.amount', 'arguments_hash', 'input']) {
      expect([name, guess(known, [salts(name)])]).toEqual([name, SECRET]);
    }
  } finally {
    await snapshot.close();
  }
});

const argumentsHash = (amount: string): string => documentHash(nativeSha256, { amount });
const factsWith = (amount: string) => ({ amount: { decimal: amount }, currency: 'EUR' });

async function admitted({ post }: Setup, id: string): Promise<string> {
  const envelope = admissionEnvelope({
    ...refund(SECRET),
    agent: { id: 'agent-7' },
    arguments_hash: argumentsHash(SECRET),
    run: { id, seq: 0 },
  });
  const { json, status } = await post('/v1/agent/admissions', envelope);
  expect(status).toBe(200);
  return String(json['registry_proof_id']);
}

/** Shares the proof by token and in a package. Returns the public ids, keyed by path parameter. */
async function shared({ post }: Setup, proof_id: string): Promise<Record<string, string>> {
  const request = {
    schema_version: 'svc.lifecycle.share_token_request/1.0',
    artifact_kind: 'trust',
  };
  const token = await post('/v1/share-tokens', { ...request, proof_id });
  const packed = await post('/v1/packages', {
    schema_version: 'svc.lifecycle.package_request/1.0',
    proof_ids: [proof_id],
  });
  const own = Object.entries(ID_PREFIX).map(([name, prefix]) => [name, prefix + proof_id]);
  return {
    ...(Object.fromEntries(own) as Record<string, string>),
    share_token: String(token.json['share_token']),
    package_id: String(packed.json['package_id']),
    identifier: proof_id,
    leaf_index: '0',
  };
}

/** The answer of each public GET operation, except the tile operation: tiles are among the published files. */
async function publicAnswers(
  snapshot: SqlSnapshot,
  ids: Record<string, string>,
): Promise<Buffer[]> {
  const { port } = await snapshot.serve(snapshot.publicServer());
  const paths = OPERATIONS.filter(({ spec }) => spec.method === 'get').map(({ spec }) => spec.path);
  return Promise.all(
    paths
      .filter((path) => /^\/(?:api|log)\//.test(path) && path !== '/log/tile/{tile}')
      .map(async (path) => {
        const filled = path.replaceAll(FILLED, (_, name: string) => ids[name]!);
        const query = path === '/api/public/verify' ? `?identifier=${ids['identifier']!}` : '';
        const response = await fetch(`http://127.0.0.1:${String(port)}${filled}${query}`);
        expect([path, response.status]).toEqual([path, 200]);
        return Buffer.from(await response.arrayBuffer());
      }),
  );
}

async function fetched({ get }: Setup, path: string): Promise<Buffer> {
  const { bytes, status } = await get(path);
  expect([path, status]).toEqual([path, 200]);
  return bytes;
}

const filesBelow = (directory: string): Buffer[] =>
  readdirSync(directory, { recursive: true, encoding: 'utf8' })
    .map((name) => join(directory, name))
    .filter((path) => statSync(path).isFile())
    .map((path) => readFileSync(path));

/** All values of 32 bytes in the documents, as hex: hex and base64 in text, and aligned bytes in binary documents. */
function digestsIn(documents: readonly Buffer[]): Set<string> {
  const found = documents.flatMap((bytes) => {
    const text = bytes.toString('latin1');
    const hex = text.match(/[0-9a-f]{64}/g) ?? [];
    const base64 = (text.match(/[A-Za-z0-9+/]{43}=/g) ?? []).flatMap(
      (one) => attempt(() => toHex(fromBase64(one))) ?? [],
    );
    const raw = Array.from({ length: Math.floor(bytes.length / 32) }, (_, at) =>
      toHex(bytes.subarray(at * 32, at * 32 + 32)),
    );
    return [...hex, ...base64, ...(/^[\x20-\x7e\s]*$/.test(text) ? [] : raw)];
  });
  return new Set(found);
}

/** Hashes every amount without a salt and with each salt. Returns the amount with a hash in `known`, or null. */
function guess(known: ReadonlySet<string>, salts: readonly string[]): string | null {
  const inputOf = (amount: string, salt?: string): string => {
    const tenant = { tenant_id: TENANT, environment: 'sandbox' } as const;
    const agent = { id: 'agent-7', framework: null, bound: false };
    const rest = { approval: null, budgets: {}, environment: tenant.environment, fixture: null };
    const asked = { action: 'ISSUE_REFUND', tool: 'payments.refund', lane: 'agent' as const };
    const input = { ...rest, ...asked, agent, facts: factsWith(amount), tenant };
    return hashHex(nativeSha256, utf8(policyInputText(input, salt)));
  };
  const found = AMOUNTS.find((amount) => {
    const fact = factsWith(amount).amount;
    const values = [fact, amount, factsWith(amount)].map((one) => documentHash(nativeSha256, one));
    const hashes = [...values, argumentsHash(amount), inputOf(amount)];
    return (
      hashes.some((hash) => known.has(hash)) ||
      salts.some((salt) =>
        [
          commitmentTo(nativeSha256, [salt, 'fact.amount', fact]),
          commitmentTo(nativeSha256, [salt, 'arguments_hash', argumentsHash(amount)]),
          inputOf(amount, salt),
        ].some((hash) => known.has(hash)),
      )
    );
  });
  return found ?? null;
}

async function saltsOf({ db }: Setup, proofId: string): Promise<SaltOf> {
  const [row] = await db.sql<[{ seed: Buffer }]>`
    select seed from svc.intake where proof_id = ${proofId}`;
  return saltsFrom(nativeSha256, row.seed);
}
