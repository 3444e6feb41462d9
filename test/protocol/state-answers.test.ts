import { describe, expect, it } from 'vitest';
import { fromHex } from '#protocol/bytes';
import { facadeSchema, type Facade } from '#protocol/schemas/facade';
import {
  awaitsVerdict,
  historyOf,
  packageAnswer,
  proofAnswer,
  unresolvedBody,
  type ProofFacts,
} from '#protocol/state/answers';
import { decodeHistory, decodeProof, type PublicProof } from '#protocol/state/record';
import { ARTIFACT_KINDS, type ArtifactKind, packageStatus } from '#protocol/status';
import { sha256 } from '../fixtures/leaves.js';
import { fullLog } from '../fixtures/full-log.js';
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

const NO = 'BACKEND_LOOKUP_REQUIRED';
const GOOD = ['VALID', 'PASS', 'VERIFIED', 'TRUST_ESTABLISHED'];
const all = (status: string): string[] => [status, status, status, status];

/** Facts of a proof, the statuses of its proof, passport, certificate and trust, and the length of its chain. */
const CASES: [name: string, facts: ProofFacts, statuses: string[], stages: number][] = [
  ['valid', factsOf(1, {}), GOOD, 6],
  ['live', factsOf(2, { isLive: true }), GOOD, 6],
  ['denial', factsOf(3, DENIAL), ['VALID'], 3],
  ['outcome', factsOf(4, { ...DENIAL, effect: 'ADMIT' }), ['VALID'], 3],
  ['unverified', factsOf(5, { verdict: 'none', verdictSize: null, verifiedAt: null }), all(NO), 0],
  ['failed', factsOf(6, { verdict: 'fail' }), all(NO), 0],
  ['erased', factsOf(7, { isGone: true }), all(NO), 0],
  [
    'expired passport',
    factsOf(8, { ends: [null, BEFORE, BEFORE + 1, BEFORE + 1] }),
    ['VALID', 'EXPIRED', 'EXPIRED', 'EXPIRED'],
    6,
  ],
  [
    'revoked certificate',
    factsOf(9, { revoked: 0b0100 }),
    ['VALID', 'PASS', 'REVOKED', 'REVOKED'],
    6,
  ],
  [
    'revoked and expired',
    factsOf(10, { revoked: 0b0010, ends: [BEFORE, null, null, null] }),
    ['EXPIRED', 'REVOKED', 'REVOKED', 'REVOKED'],
    6,
  ],
  ['revoked and failed', factsOf(11, { revoked: 0b0001, verdict: 'fail' }), all(NO), 0],
  ['revoked and erased', factsOf(12, { revoked: 0b0001, isGone: true }), all('REVOKED'), 0],
  ['voided', factsOf(13, {}, 600), all(NO), 0],
  [
    'revoked and voided',
    factsOf(14, { revoked: 0b0010 }, 600),
    [NO, 'REVOKED', 'REVOKED', 'REVOKED'],
    0,
  ],
  ['by a key that was compromised later', factsOf(15, {}, 601), GOOD, 6],
];

describe('an answer', () => {
  it.each(CASES)(
    'has the statuses and trust chain of the proof: %s',
    (name, facts, statuses, stages) => {
      const answers = ARTIFACT_KINDS.map((kind) =>
        proofAnswer({ kind, requested: 'a "quoted" id', matchedOn: 'proof_id' }, facts),
      );
      const found = answers.flatMap((text) => (text === null ? [] : [JSON.parse(text) as Facade]));
      expect(found.map(({ verification }) => verification.verification_status)).toEqual(statuses);
      for (const answer of found) {
        expect(facadeSchema.parse(answer)).toEqual(answer);
        const environment = name === 'live' ? 'live' : 'sandbox';
        expect(answer.artifact).toMatchObject({ environment });
        expect(answer.trust_chain.sequence).toHaveLength(stages);
        const isDated = !['unverified', 'voided', 'revoked and voided'].includes(name);
        expect(answer.verification.verified_at !== undefined).toBe(isDated);
      }
    },
  );

  const PACKAGE_ID = `pkg_${proofIdOf(99)}`;
  const MATCH = { kind: 'trust', requested: PACKAGE_ID, matchedOn: 'package_id' } as const;
  it.each([
    ['of valid proofs', ['valid', 'live'], 'TRUST_ESTABLISHED'],
    ['of live proofs', ['live'], 'TRUST_ESTABLISHED'],
    ['of a live proof and a sandbox proof', ['live', 'valid'], 'TRUST_ESTABLISHED'],
    ['with an expired passport', ['valid', 'expired passport'], 'EXPIRED'],
    ['with a denial', ['valid', 'denial'], NO],
    ['with a failed proof', ['failed', 'valid', 'expired passport'], NO],
    ['with a revoked certificate', ['failed', 'revoked certificate'], 'REVOKED'],
    ['without a verdict', ['unverified'], NO],
    ['with a voided proof', ['voided', 'valid'], NO],
  ])('about a package %s has the status that follows from the members', (_, names, status) => {
    const members = names.map((name) => CASES.find(([one]) => one === name)![1]);
    const answer = JSON.parse(packageAnswer(sha256, MATCH, PACKAGE_ID, members)) as Facade;
    expect(facadeSchema.parse(answer)).toEqual(answer);
    expect(answer.verification.verification_status).toBe(status);
    const isLive = names.every((name) => name === 'live');
    expect(answer.artifact).toMatchObject({ environment: isLive ? 'live' : 'sandbox' });
    expect(answer.trust_chain.available).toBe(
      !names.some((name) => /denial|failed|verdict|unver|voided/.test(name)),
    );
  });

  it.each([
    ['no proofs', []],
    ['a missing proof', [CASES[0]![1], null]],
  ])('about a package with %s is unresolved', (_, members) => {
    expect(packageAnswer(sha256, MATCH, PACKAGE_ID, members)).toBe(
      unresolvedBody('trust', PACKAGE_ID),
    );
  });

  it('about a package without members asserts nothing', () => {
    expect(packageStatus([])).toBe(NO);
  });
});

it('an answer about a proof that an unknown key signed names no key', () => {
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

it.each([
  ['can get a verdict', { key: KEY }, true],
  ['has an erased payload', { key: KEY, isGone: true }, false],
  ['has no key', { key: null }, false],
  ['has a key whose signatures never count', { key: { ...KEY, from: null } }, false],
  ['has a key retired at its leaf', { key: { ...KEY, retiredFrom: 600 } }, false],
  ['has a key compromised from its leaf on', { key: { ...KEY, compromisedFrom: 600 } }, false],
  ['precedes the retirement of its key', { key: { ...KEY, retiredFrom: 601 } }, true],
])('awaitsVerdict > decides on a proof that %s', (_, { key, ...members }, expected) => {
  const proof = { ...PROOF, verdict: 'none', ...members } as const;
  expect(awaitsVerdict({ proof, key })).toBe(expected);
});

describe('history', () => {
  const time = (minute: number): number => Date.UTC(2026, 10, 22, 8, minute);
  const at = (minute: number): string => new Date(time(minute)).toISOString();
  const historyIn = (position: number, kind: ArtifactKind, minute: number) => {
    const { key, record, history } = fullLog.map[position]!;
    const log = { origin: ORIGIN, size: 17, expiredThrough: time(minute) };
    const facts = { proofId: key.slice(2), proof: decodeProof(fromHex(record)), key: null, log };
    return historyOf(kind, facts, decodeHistory(fromHex(history)));
  };
  const accepted = [
    { event: 'accepted', at: at(1) },
    { event: 'appended', leaf_index: 6 },
    { event: 'verified', at: at(8), log_size: 13 },
  ];

  it('lists the revocations and expiries that affect the artifact', () => {
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

  it('lists failures, restorations and erasures', () => {
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
