import { describe, expect } from 'vitest';
import { documentHash } from '#protocol/hash';
import { verifyOffline } from '#protocol/offline';
import { proofExportSchema, type ProofExport } from '#protocol/schemas/proof-export';
import { nativeCrypto, nativeSha256 } from '#runtime/crypto/node';
import { admissionEnvelope } from '../../fixtures/agent.js';
import { engineTest, type Setup } from './setup.js';

const it = engineTest();

const ARGUMENTS_HASH = documentHash(nativeSha256, { amount: 480 });

async function admitted({ post, publish }: Setup): Promise<string> {
  const body = admissionEnvelope({ arguments_hash: ARGUMENTS_HASH });
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
    const disclosed = { arguments_hash: ARGUMENTS_HASH };
    const pins = {
      aepKeys: [setup.registry.admit.signer.publicKey],
      log: { vkey: setup.log.vkey, origin: setup.log.origin },
    };
    expect(verifyOffline(document, pins, nativeCrypto)).toMatchObject({
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

  it('discloses nothing for an empty list, and rejects an empty name and a second list', async ({
    setup,
  }) => {
    const proofId = await admitted(setup);
    expect((await exported(setup, proofId, '')).disclosures).toEqual([]);
    for (const [query, why] of [
      ['disclose=arguments_hash,', 'expected names separated by commas'],
      ['disclose=arguments_hash&disclose=amount', 'The parameter "disclose" is repeated'],
    ]) {
      const { json } = await setup.get(`/v1/proofs/${proofId}/export?${query!}`);
      expect(json).toMatchObject({ code: 'invalid_query' });
      expect(json['detail']).toContain(why);
    }
  });
});
