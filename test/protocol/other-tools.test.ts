import { createPublicKey } from 'node:crypto';
import { bundleFromJSON } from '@sigstore/bundle';
import { toSignedEntity, VerificationError, Verifier } from '@sigstore/verify';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { toBase64, toBase64Url } from '#protocol/bytes';
import { canonicalize } from '#protocol/json';
import type { ProofExport } from '#protocol/schemas/proof-export';
import {
  canonicalJson,
  executeIntentHttp,
  exportProofHttp,
  getProofInclusionHttp,
} from '#sdk/index';
import {
  missingTools,
  shellBlocks,
  withoutTools,
  workplace,
  type Workplace,
} from '../fixtures/other-tools.js';
import { fullLog } from '../fixtures/full-log.js';
import { openSdkWorld, type SdkWorld } from '../fixtures/sdk-world.js';

/** Proofs of a real engine, verified by third-party programs. */
let world: SdkWorld;
let exported: ProofExport;
let tlogProof: string;
let aepKey: string;

beforeAll(async () => {
  world = await openSdkWorld();
  aepKey = toBase64Url(world.registry.admit.signer.publicKey);
  // Several leaves, so that the inclusion path is not empty.
  const ids: string[] = [];
  for (const intent_id of ['réserver ✈', 'second', 'third']) {
    const receipt = await executeIntentHttp(world.options, { intent_id, action: 'BOOK' });
    ids.push(receipt.registry_proof_id);
  }
  await world.registry.verifyAll();
  await world.log.publish();
  const proof = { proof_id: ids[0]! };
  exported = (await exportProofHttp(world.options, proof)).response;
  const asked = { ...proof, format: 'tlog-proof' } as const;
  tlogProof = (await getProofInclusionHttp(world.options, asked)).response;
});
afterAll(() => world.close());

/** Changes a character in the middle to a different digit, because tools may ignore case. */
const altered = (text: string): string => {
  const middle = Math.floor(text.length / 2);
  return `${text.slice(0, middle)}${text[middle] === '0' ? '1' : '0'}${text.slice(middle + 1)}`;
};

const verifier = () =>
  new Verifier(
    {
      certificateAuthorities: [],
      timestampAuthorities: [],
      tlogs: [],
      ctlogs: [],
      publicKey: (hint) => {
        expect(hint).toBe(exported.aep.key_id);
        const jwk = { kty: 'OKP', crv: 'Ed25519', x: aepKey };
        return { publicKey: createPublicKey({ key: jwk, format: 'jwk' }), validFor: () => true };
      },
    },
    { tlogThreshold: 0, ctlogThreshold: 0, timestampThreshold: 0 },
  );
const entity = (dsseEnvelope: ProofExport['envelope']) =>
  toSignedEntity(
    bundleFromJSON({
      mediaType: 'application/vnd.dev.sigstore.bundle.v0.1+json',
      verificationMaterial: {
        publicKey: { hint: dsseEnvelope.signatures[0].keyid },
        tlogEntries: [],
      },
      dsseEnvelope,
    }),
  );

it("sigstore's verifier > verifies the envelope of an export, and rejects an altered one", () => {
  expect(() => verifier().verify(entity(exported.envelope))).not.toThrow();
  const payload = altered(exported.envelope.payload);
  expect(() => verifier().verify(entity({ ...exported.envelope, payload }))).toThrow(
    VerificationError,
  );
});

describe.skipIf(missingTools.length > 0 && process.env['CI'] === undefined)(
  `documented commands of third-party tools${withoutTools}`,
  () => {
    let place: Workplace;
    let [signature, hashes, disclosures, inclusion] = ['', '', '', ''];

    beforeAll(async () => {
      expect(missingTools).toEqual([]);
      const blocks = await shellBlocks('### With other tools');
      expect(blocks).toHaveLength(4);
      [signature = '', hashes = '', disclosures = '', inclusion = ''] = blocks;
      place = await workplace({ AEP_KEY: aepKey, LOG_VKEY: world.log.vkey });
    });

    const put = (document: unknown): Promise<void> =>
      place.write('proof.json', JSON.stringify(document));

    it('verify an export of the engine', async () => {
      await place.write('proof.json', canonicalJson(exported));
      const said = await place.paste(signature);
      expect(said).toContain('Signature Verified Successfully');
      expect(said).toContain('aep.json: OK');
      expect(await place.paste(hashes)).toBe('proof-record.json: OK\n');
      expect(await place.paste(disclosures)).toBe('true\n');
      const { leaf_index: index, tree_size: size } = exported.inclusion;
      expect(exported.inclusion.path.length).toBeGreaterThan(0);
      expect(await place.paste(inclusion)).toBe(
        `included: leaf ${index} of ${size} in ${world.log.origin}\n`,
      );
    }, 120_000);

    it('verify a .tlog-proof of the engine', async () => {
      await place.write('given.tlog-proof', tlogProof);
      await place.write('entry.json', canonicalize(exported.entry));
      const go = 'go run main.go "$LOG_VKEY" given.tlog-proof entry.json';
      expect(await place.paste(go)).toMatch(/^included: leaf /);
      const line = toBase64(new Uint8Array(32));
      await place.write('given.tlog-proof', tlogProof.replace(/\n[^\n]+\n\n/, `\n${line}\n\n`));
      await expect(place.paste(go)).rejects.toMatchObject({
        stderr: expect.stringContaining('not included') as string,
      });
    }, 120_000);

    it('reject altered documents', async () => {
      const { envelope, entry, inclusion: claim } = exported;
      await put({ ...exported, envelope: { ...envelope, payload: altered(envelope.payload) } });
      await expect(place.paste(signature)).rejects.toThrow();
      await put({ ...exported, entry: { ...entry, aep_hash: altered(entry.aep_hash) } });
      await expect(place.paste(signature)).rejects.toThrow();

      await put(exported);
      await place.paste(signature);
      const subject = { ...exported.aep.subject, action: 'DELETE_AUDIT_LOG' };
      await put({ ...exported, aep: { ...exported.aep, subject } });
      await expect(place.paste(hashes)).rejects.toThrow();
      await put({ ...exported, proof_record: { ...exported.proof_record, request_hash: '0' } });
      await expect(place.paste(hashes)).rejects.toThrow();

      const disclosed = exported.disclosures.map(([salt, name]) => [salt, name, '0'.repeat(64)]);
      await put({ ...exported, disclosures: disclosed });
      await expect(place.paste(disclosures)).rejects.toThrow();

      await put({ ...exported, entry: { ...entry, time: '2020-01-01T00:00:00.000Z' } });
      await expect(place.paste(inclusion)).rejects.toThrow();
      const checkpoint = claim.checkpoint.replace(/\n\d+\n/, '\n99\n');
      await put({ ...exported, inclusion: { ...claim, checkpoint } });
      await expect(place.paste(inclusion)).rejects.toThrow();
    }, 120_000);

    it('verify the snapshot entry and the record in evidence', async () => {
      const evidence = fullLog.evidence[0]!;
      const blocks = await shellBlocks('### Evidence with other tools');
      const [entry = '', map = ''] = blocks;
      const there = await workplace({ LOG_VKEY: fullLog.log_vkey });
      await there.write('evidence.json', JSON.stringify(evidence));
      expect(await there.paste(entry)).toMatch(/^included: leaf /);
      expect(await there.paste(map)).toMatch(/^in the map: 01/);
      const [lookup, ...others] = evidence.lookups as { record: string }[];
      const record = altered(lookup!.record);
      const lookups = [{ ...lookup, record }, ...others];
      await there.write('evidence.json', JSON.stringify({ ...evidence, lookups }));
      await expect(there.paste(map)).rejects.toThrow();
    }, 120_000);
  },
);
