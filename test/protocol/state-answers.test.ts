import { describe, expect, it } from 'vitest';
import { fromHex, fromUtf8 } from '#protocol/bytes';
import { responseHead, unresolvedBody } from '#protocol/snapshot/head';
import { recordBody } from '#protocol/snapshot/record';
import { withoutVoided } from '#protocol/snapshot/voided';
import { historyOf, packageAnswer, proofAnswer, type ProofFacts } from '#protocol/state/answers';
import { decodeHistory, decodeProof, type PublicProof } from '#protocol/state/record';
import { ARTIFACT_KINDS, type ArtifactKind } from '#protocol/status';
import { memberOf, packageIndexId, renderPackage } from '#publisher/render/package-record';
import { renderRecord } from '#publisher/render/record';
import { nextVectors } from '../fixtures/next-vectors.js';
import { sha256 } from '../fixtures/leaves.js';
import { ORIGIN, proofIdOf } from '../fixtures/public-log.js';

const KEY = { keyId: 'A'.repeat(43), from: 1, retiredFrom: null, compromisedFrom: null };
const LOG = { origin: ORIGIN, size: 700, expiredThrough: 2_000_000 };
const BEFORE = LOG.expiredThrough;
const PROOF: PublicProof = {
  effect: 'ADMIT',
  isLive: false,
  hasArtifacts: true,
  verdict: 'pass',
  isGone: false,
  revoked: 0,
  leafIndex: 600,
  acceptedAt: 1_000_123,
  verdictSize: 650,
  verifiedAt: 1_500_456,
  keyIndex: 0,
  ends: [null, BEFORE + 1, BEFORE + 2, null],
  aepHash: fromHex('aa'.repeat(32)),
  proofRecordHash: fromHex('bb'.repeat(32)),
};
const DENIAL = { effect: 'DENY', hasArtifacts: false, ends: [null, null, null, null] } as const;

const factsOf = (
  number: number,
  members: Partial<PublicProof>,
  voidedFrom: number | null = null,
): ProofFacts => ({
  proofId: proofIdOf(number),
  proof: { ...PROOF, ...members },
  key: { ...KEY, compromisedFrom: voidedFrom },
  log: LOG,
});

/** The record that the publisher renders for the same facts. */
function renderedRecord({ proofId, proof, key, log }: ProofFacts): Uint8Array {
  const kinds = (test: (at: number) => boolean): ArtifactKind[] =>
    ARTIFACT_KINDS.filter((_, at) => test(at));
  const verdict = {
    outcome: proof.isGone ? ('erased' as const) : (proof.verdict as 'pass' | 'fail'),
    expired: kinds((at) => (proof.ends[at] ?? Infinity) <= log.expiredThrough),
    verifiedAt: proof.verifiedAt!,
  };
  const record = renderRecord(
    {
      leafIndex: proof.leafIndex,
      proofId,
      aepHash: 'aa'.repeat(32),
      proofRecordHash: 'bb'.repeat(32),
      acceptedAt: proof.acceptedAt,
      effect: proof.effect as 'ADMIT' | 'DENY',
      isOutcome: proof.effect === 'ADMIT' && !proof.hasArtifacts,
      environment: proof.isLive ? 'live' : 'sandbox',
      keyId: KEY.keyId,
      logOrigin: log.origin,
      tileWidth: 188,
    },
    {
      verdict: proof.verdict === 'none' ? undefined : verdict,
      revoked: kinds((at) => (proof.revoked & (1 << at)) !== 0),
    },
  );
  const from = key!.compromisedFrom;
  const ranges = from === null || from > proof.leafIndex ? [] : [{ keyId: KEY.keyId, from }];
  return withoutVoided(record, fromHex(proofId), ranges);
}

function renderedAnswer(
  record: Uint8Array,
  id: string,
  kind: ArtifactKind,
  requested: string,
): string | null {
  const body = recordBody(record, fromHex(id), kind);
  return (
    body && responseHead(kind, requested, 'proof_id') + fromUtf8(body.part) + fromUtf8(body.tail)
  );
}

const CASES: [string, ProofFacts][] = [
  ['valid', factsOf(1, {})],
  ['live', factsOf(2, { isLive: true })],
  ['denial', factsOf(3, DENIAL)],
  ['outcome', factsOf(4, { ...DENIAL, effect: 'ADMIT' })],
  ['unverified', factsOf(5, { verdict: 'none', verdictSize: null, verifiedAt: null })],
  ['failed', factsOf(6, { verdict: 'fail' })],
  ['erased', factsOf(7, { isGone: true })],
  ['expired passport', factsOf(8, { ends: [null, BEFORE, BEFORE + 1, BEFORE + 1] })],
  ['revoked certificate', factsOf(9, { revoked: 0b0100 })],
  ['revoked and expired', factsOf(10, { revoked: 0b0010, ends: [BEFORE, null, null, null] })],
  ['revoked and failed', factsOf(11, { revoked: 0b0001, verdict: 'fail' })],
  ['revoked and erased', factsOf(12, { revoked: 0b0001, isGone: true })],
  ['voided', factsOf(13, {}, 600)],
  ['revoked and voided', factsOf(14, { revoked: 0b0010 }, 600)],
  ['by a key that was compromised later', factsOf(15, {}, 601)],
];

describe('an answer equals that of the publisher', () => {
  it.each(CASES)('%s', (_, facts) => {
    const record = renderedRecord(facts);
    for (const kind of ARTIFACT_KINDS) {
      const match = { kind, requested: 'a "quoted" id', matchedOn: 'proof_id' };
      const expected = renderedAnswer(record, facts.proofId, kind, match.requested);
      expect(proofAnswer(match, facts)).toBe(expected);
    }
  });

  const PACKAGE_ID = `pkg_${proofIdOf(99)}`;
  const MATCH = { kind: 'trust', requested: PACKAGE_ID, matchedOn: 'package_id' } as const;
  it.each([
    ['of valid proofs', ['valid', 'live']],
    ['of live proofs', ['live']],
    ['with an expired passport', ['valid', 'expired passport']],
    ['with a denial', ['valid', 'denial']],
    ['with a failed proof', ['failed', 'valid', 'expired passport']],
    ['with a revoked certificate', ['failed', 'revoked certificate']],
    ['without a verdict', ['unverified']],
    ['with a voided proof', ['voided', 'valid']],
  ])('package %s', (_, names) => {
    const members = names.map((name) => CASES.find(([one]) => one === name)![1]);
    const record = renderPackage(
      ORIGIN,
      PACKAGE_ID,
      members.map((facts) => memberOf(renderedRecord(facts), facts.proofId, 0)),
    );
    const body = recordBody(record, fromHex(packageIndexId(PACKAGE_ID)), 'trust')!;
    const expected =
      responseHead('trust', PACKAGE_ID, 'package_id') + fromUtf8(body.part) + fromUtf8(body.tail);
    expect(packageAnswer(sha256, MATCH, PACKAGE_ID, members)).toBe(expected);
  });

  it.each([
    ['none', []],
    ['a missing one', [CASES[0]![1], null]],
  ])('a package with %s does not resolve', (_, members) => {
    expect(packageAnswer(sha256, MATCH, PACKAGE_ID, members)).toBe(
      unresolvedBody('trust', PACKAGE_ID),
    );
  });
});

it('an answer about a proof by an unknown key names no key', () => {
  const match = { kind: 'proof', requested: '', matchedOn: 'proof_id' } as const;
  const { integrity } = JSON.parse(proofAnswer(match, { ...factsOf(1, {}), key: null })!) as {
    integrity: object;
  };
  expect(integrity).not.toHaveProperty('key_id');
});

it('an erased proof that was never verified can be revoked', () => {
  const unverified = { verdict: 'none', verdictSize: null, verifiedAt: null, revoked: 1 } as const;
  const statusOfProof = (members: Partial<PublicProof>): string =>
    /"verification_status":"(\w+)"/.exec(
      proofAnswer({ kind: 'proof', requested: '', matchedOn: 'proof_id' }, factsOf(1, members))!,
    )![1]!;
  expect(statusOfProof(unverified)).toBe('BACKEND_LOOKUP_REQUIRED');
  expect(statusOfProof({ ...unverified, isGone: true })).toBe('REVOKED');
});

describe('history', () => {
  const time = (minute: number): number => Date.UTC(2026, 10, 22, 8, minute);
  const at = (minute: number): string => new Date(time(minute)).toISOString();
  const historyIn = (position: number, kind: ArtifactKind, minute: number) => {
    const { key, record, history } = nextVectors.map[position]!;
    const log = { origin: ORIGIN, size: 17, expiredThrough: time(minute) };
    const facts = { proofId: key.slice(2), proof: decodeProof(fromHex(record)), key: null, log };
    return historyOf(kind, facts, decodeHistory(fromHex(history)));
  };
  const accepted = [
    { event: 'accepted', at: at(1) },
    { event: 'appended', leaf_index: 6 },
    { event: 'verified', at: at(8), log_size: 13 },
  ];

  it('has the revocations and expiries that concern the artifact', () => {
    const reason_hash = '22'.repeat(32);
    const revoked = {
      event: 'revoked',
      at: at(9),
      artifact: 'certificate',
      leaf_index: 14,
      reason_hash,
    };
    const passport = { event: 'expired', at: at(30), artifacts: ['passport', 'trust'] };
    const certificate = { event: 'expired', at: at(40), artifacts: ['certificate'] };
    expect(historyIn(0, 'trust', 40)).toEqual([...accepted, revoked, passport, certificate]);
    expect(historyIn(0, 'trust', 31)).toEqual([...accepted, revoked, passport]);
    expect(historyIn(0, 'passport', 40)).toEqual([
      ...accepted,
      { ...passport, artifacts: ['passport'] },
    ]);
    expect(historyIn(0, 'proof', 29)).toEqual(accepted);
  });

  it('has failures, restorations and erasures', () => {
    expect(historyIn(5, 'proof', 31).slice(2)).toEqual([
      { event: 'failed', at: at(8), log_size: 13 },
      { event: 'verified', at: at(31), log_size: 16 },
    ]);
    expect(historyIn(1, 'proof', 31).slice(2)).toEqual([
      { event: 'verified', at: at(8), log_size: 13 },
      { event: 'erased', at: at(10), log_size: 15 },
    ]);
  });
});
