import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { exampleKeys } from '#api/public/openapi/examples';
import { fromHex } from '#protocol/bytes';
import { parseEntry } from '#protocol/entries';
import { idsOf } from '#protocol/ids';
import { publicJwk } from '#protocol/keys';
import {
  facadeSchema,
  historySchema,
  trustChainSchema,
  trustPackageSchema,
} from '#protocol/schemas/facade';
import type { Facade } from '#protocol/schemas/facade';
import type { ProofEntry, StatusEntry } from '#protocol/schemas/log-entry';
import { packageAnswer, proofAnswer } from '#protocol/state/answers';
import { chainView, historyView } from '#protocol/state/views';
import { parseTime } from '#protocol/time';
import { formatTlogProof } from '#protocol/checkpoint';
import { sha256 } from '../../fixtures/leaves.js';
import { inclusionPath } from '../../fixtures/tree.js';
import {
  admitted,
  aepKey,
  checkpoint,
  entries,
  leaves,
  logVkey,
  ORIGIN,
  revocation,
} from '../../fixtures/worked-log.js';

const examples = [
  ...readFileSync(new URL('../../../spec/answers.md', import.meta.url), 'utf8')
    .split('\n## ')
    .find((chapter) => chapter.startsWith('16.'))!
    .matchAll(/```json\n(.*?)\n```/gs),
].map(([, text]) => JSON.parse(text!) as Record<string, unknown>);

const ids = idsOf(admitted.proofId);
const PACKAGE = 'pkg_019aa2c1e07b7c208a3e5d6b7c8d9e0f';
const entry = parseEntry(admitted.entry) as ProofEntry;
const status = parseEntry(revocation) as StatusEntry;
const VERIFIED_AT = parseTime('2026-11-20T17:29:00.250Z');

/** The admission of the worked log, verified at tree size 3. Leaf 3 revokes its certificate. */
const proof = {
  proofId: admitted.proofId,
  proof: {
    effect: entry.effect,
    isLive: false,
    hasArtifacts: true,
    verdict: 'pass',
    isGone: false,
    revoked: 4,
    leafIndex: admitted.leafIndex,
    acceptedAt: parseTime(entry.time),
    verdictSize: 3,
    verifiedAt: VERIFIED_AT,
    keyIndex: 0,
    ends: [null, null, null, null],
    aepHash: fromHex(entry.aep_hash),
    proofRecordHash: fromHex(entry.proof_record_hash),
  },
  key: { keyId: entry.key_id, from: 1, retiredFrom: null, compromisedFrom: 4 },
  log: { origin: ORIGIN, size: leaves.length, expiredThrough: parseTime(status.time) },
  history: [
    { type: 'passed', index: 3, time: VERIFIED_AT },
    {
      type: 'revoked',
      index: entries.indexOf(revocation),
      time: parseTime(status.time),
      kind: 'certificate',
      reasonHash: fromHex(status.reason_hash),
    },
  ],
} as const;

it('worked examples > equal the responses for verdict, history, chain and package', () => {
  const match = {
    kind: 'certificate',
    requested: ids.certificate_id,
    matchedOn: 'certificate_id',
  } as const;
  const facade = JSON.parse(proofAnswer(match, proof)!) as Facade;
  const ofPackage = { kind: 'trust', requested: PACKAGE, matchedOn: 'package_id' } as const;
  const answers = [
    [facadeSchema, facade],
    [historySchema, historyView(facade, proof)],
    [trustChainSchema, chainView(facade, proof)],
    [facadeSchema, JSON.parse(packageAnswer(sha256, ofPackage, PACKAGE, [proof])) as Facade],
  ] as const;
  for (const [schema, answer] of answers) {
    expect(schema.parse(answer)).toEqual(answer);
    expect(examples).toContainEqual(answer);
  }
});

it('worked examples > equal the evidence in a trust package', () => {
  const tlog_proof = formatTlogProof({
    index: admitted.leafIndex,
    path: inclusionPath(sha256, leaves, admitted.leafIndex),
    checkpoint,
  });
  const [range] = exampleKeys.aep;
  const keys = {
    ...exampleKeys,
    aep: [{ ...range, ...publicJwk(sha256, aepKey.publicKey), compromised_from: 4 }],
    log: { origin: ORIGIN, vkey: logVkey, retired: [] },
  };
  const evidence = { log_entry: entry, leaf_index: admitted.leafIndex, tlog_proof, keys };
  expect(trustPackageSchema.shape.evidence.parse(evidence)).toEqual(evidence);
  expect(examples).toContainEqual({ evidence });
});
