import { describe, expect } from 'vitest';
import { commitmentTo, type Disclosure, saltsFrom } from '#protocol/commitments';
import { documentHash } from '#protocol/hash';
import { canonicalize, type JsonValue } from '#protocol/json';
import { verifyOffline } from '#protocol/offline';
import { proofExportSchema, type ProofExport } from '#protocol/schemas/proof-export';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { admissionEnvelope } from '../../fixtures/agent.js';
import { engineTest, type Setup } from './setup.js';

const it = engineTest();

/** The amounts that a guesser tries. */
const AMOUNTS = Array.from({ length: 1_000 }, (_, amount) => ({ amount }));
const SECRET = AMOUNTS[480]!;
const argumentsHash = (guess: JsonValue): string => documentHash(nativeSha256, guess);

async function admitted({ post, publish }: Setup): Promise<string> {
  const body = admissionEnvelope({ arguments_hash: argumentsHash(SECRET) });
  const { json } = await post('/v1/agent/admissions', body);
  await publish();
  return String(json['registry_proof_id']);
}

async function exported({ get }: Setup, proofId: string, names: string): Promise<ProofExport> {
  const { json } = await get(`/v1/proofs/${proofId}/export?disclose=${names}`);
  return proofExportSchema.parse(json);
}

describe('export with disclosed values', () => {
  it('proves these values and no others, offline and to the engine', async ({ setup }) => {
    const document = await exported(setup, await admitted(setup), 'arguments_hash');
    const disclosed = { arguments_hash: argumentsHash(SECRET) };
    const pins = {
      aepKeys: [setup.registry.admit.signer.publicKey],
      log: { vkey: setup.log.vkey, origin: setup.log.origin },
    };
    const crypto = { sha256: nativeSha256, verify: nativeVerify };
    expect(verifyOffline(document, pins, crypto)).toMatchObject({
      authentic: true,
      included: true,
      disclosed,
      withheld: 1,
    });
    const verdict = await setup.post('/v1/proofs/verify', document);
    expect(verdict.json).toMatchObject({ status: 'VALID', disclosed, withheld: 1 });
    const disclosures = document.disclosures.map(([salt, name]) => [salt, name, '0'.repeat(64)]);
    const altered = await setup.post('/v1/proofs/verify', { ...document, disclosures });
    expect(altered.json).toMatchObject({ status: 'INVALID', cause: 'altered', disclosed: null });
  });

  it('is rejected for a name that the proof does not commit to', async ({ setup }) => {
    const path = `/v1/proofs/${await admitted(setup)}/export?disclose=arguments_hash,amount`;
    const { status, json } = await setup.get(path);
    expect([status, json['code']]).toEqual([400, 'invalid_query']);
    expect(json['detail']).toContain('amount');
  });

  it('discloses nothing for an empty list, and rejects an empty name', async ({ setup }) => {
    const proofId = await admitted(setup);
    expect((await exported(setup, proofId, '')).disclosures).toEqual([]);
    const { json } = await setup.get(`/v1/proofs/${proofId}/export?disclose=arguments_hash,`);
    expect(json).toMatchObject({ code: 'invalid_query' });
    expect(json['detail']).toContain('expected names separated by commas');
  });

  it('does not let a reader guess a withheld value', async ({ setup }) => {
    const proofId = await admitted(setup);
    const document = await exported(setup, proofId, 'request_hash');
    const text = canonicalize(document);
    const { seed } = await seedOf(setup, proofId);
    const salts = [...text.matchAll(/[0-9a-f]{64}/g)].map(([salt]) => salt);
    expect(guess(text, [...new Set(salts)])).toBeNull();
    // The same search finds the value with the salt that only the service has.
    expect(guess(text, [saltsFrom(nativeSha256, seed)('arguments_hash')])).toEqual(SECRET);
  });
});

/** The amount of which the document has an unsalted hash, or a commitment under one of the salts. */
function guess(document: string, salts: readonly string[]): JsonValue | null {
  const found = AMOUNTS.find((amount) => {
    const hash = argumentsHash(amount);
    const isIn = (disclosure: Disclosure): boolean =>
      document.includes(commitmentTo(nativeSha256, disclosure));
    return document.includes(hash) || salts.some((salt) => isIn([salt, 'arguments_hash', hash]));
  });
  return found ?? null;
}

async function seedOf({ db }: Setup, proofId: string): Promise<{ seed: Buffer }> {
  const [row] = await db.sql<[{ seed: Buffer }]>`
    select seed from svc.intake where proof_id = ${proofId}`;
  return row;
}
