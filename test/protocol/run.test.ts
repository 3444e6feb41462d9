import { describe, expect, it } from 'vitest';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { subjectOf } from '#protocol/aep';
import { fromBase64, fromUtf8 } from '#protocol/bytes';
import {
  membersHash,
  missingNumbers,
  type PlacedMember,
  RUN_FAULTS,
  verifyRun,
} from '#protocol/run';
import { agentEnvelopeSchema } from '#protocol/schemas/admission';
import { type Aep, aepSchema } from '#protocol/schemas/aep';
import { SCHEMA } from '#protocol/schemas/ids';
import { nativeCrypto } from '#runtime/crypto/node';
import { packageRoot } from '#runtime/process/files';
import { sha256 } from '../fixtures/leaves.js';
import { runPackageOf, runVectors, type RunVector } from '../fixtures/run-vectors.js';

interface Vectors {
  log_vkey: string;
  entries: { canonical: string }[];
  requests: { kind: string }[];
  run: {
    close: { proof_record: { envelope: { payload: string } } };
    members: { entry: { proof_id: string; aep_hash: string } }[];
  };
}

it('close of a run > gets the AEP subject and the members hash that the Python implementation computed', () => {
  const file = join(packageRoot, 'protocol/vectors/full-log.json');
  const { requests, run } = JSON.parse(readFileSync(file, 'utf8')) as Vectors;
  const { payload } = run.close.proof_record.envelope;
  const aep = aepSchema.parse(JSON.parse(fromUtf8(fromBase64(payload))));
  const request = agentEnvelopeSchema.parse(requests.find(({ kind }) => kind === 'close'));
  const members = run.members.map(({ entry }) => ({
    proofId: entry.proof_id,
    aepHash: entry.aep_hash,
  }));
  const closed = { count: members.length, members_hash: membersHash(sha256, members) };
  expect(aep.subject).toEqual(subjectOf(request, true, closed));
});

it('verifyRun > accepts a run with approvals from the Python implementation', () => {
  const file = join(packageRoot, 'protocol/vectors/full-log.json');
  const { entries, log_vkey: vkey, run } = JSON.parse(readFileSync(file, 'utf8')) as Vectors;
  const key = entries
    .map(({ canonical }) => JSON.parse(canonical) as { use?: string; public_key: string })
    .find(({ use }) => use === 'aep')!;
  const trust = { aepKeys: [key.public_key], log: { vkey, origin: 'log.example/svc' } };
  const result = verifyRun(run, trust, nativeCrypto);
  expect(result).toMatchObject({ complete: true, missing: [1, 2], faults: [] });
  const [, , approved] = (result as { members: { aep: Aep }[] }).members;
  expect(approved!.aep.evidence.approval).not.toBeNull();
});

it('verifyRun > reports that no log is pinned, and rejects unusable pins, whatever the document is', () => {
  for (const log of [undefined, null]) {
    const result = verifyRun('{}', { log }, nativeCrypto);
    expect(result).toMatchObject({ decidable: false, cause: 'no_pinned_log' });
  }
  const log = { vkey: 'log.example/svc', origin: 'log.example/svc' };
  expect(() => verifyRun('{}', { log }, nativeCrypto)).toThrow(/expected name\+id\+key/);
  expect(() => verifyRun('{}', { aepKeys: ['x'] }, nativeCrypto)).toThrow(/base64url/);
});

it('verifyRun > reports a faulty member, even if the close does not end a run', () => {
  const vector = runVectors.cases.find(({ name }) => name === 'run-without-close')!;
  const { close, members } = JSON.parse(runPackageOf(vector)) as Record<string, object[]>;
  const faulty = [{ ...members![0]!, tlog_proof: '' }, ...members!.slice(1)];
  const document = { schema_version: SCHEMA.runPackage, close, members: faulty };
  const { aep_keys: aepKeys, log_vkey: vkey, log_origin: origin } = vector.trust;
  const trust = { aepKeys, log: { vkey: vkey!, origin: origin! } };
  const result = verifyRun(document, trust, nativeCrypto);
  expect(result).toMatchObject({
    faults: [{ code: 'malformed_tlog_proof', pointer: '/members/0' }],
  });
});

const placed = (id: string, seq: number, pending: string | null = null, effect = 'ADMIT') =>
  ({
    proof_id: id,
    effect: pending === null ? effect : 'ADMIT',
    aep: {
      subject: { kind: 'admission', run: { id: 'run', seq } },
      evidence: { approval: pending && { pending_proof_id: pending } },
    },
  }) as unknown as PlacedMember;
const held = placed('held', 1, null, 'REQUIRE_APPROVAL');

it('missingNumbers > requires that a second decision repeats the number of its pending proof', () => {
  const first = placed('first', 0);
  const numbers = (...members: PlacedMember[]) => missingNumbers([first, ...members], 2);
  expect(numbers(held, placed('second', 1, 'held'))).toEqual([]);
  const erased = { ...held, aep: null };
  expect(numbers(erased, placed('second', 1, 'held'))).toEqual([1]);
  for (const wrong of [
    [held, placed('second', 0, 'held')],
    [placed('second', 1, 'held'), held],
    [held, placed('second', 1, 'first')],
    [{ ...held, effect: 'DENY' as const }, placed('second', 1, 'held')],
    [{ ...held, aepHash: 'another than the approved AEP' }, placed('second', 1, 'held')],
    [held, placed('second', 1, 'held'), placed('third', 1, 'held')],
    [held, placed('other', 1)],
    [erased, placed('second', 0, 'held')],
    [erased, placed('second', 2, 'held')],
    [
      erased,
      { ...erased, proof_id: 'too' },
      ...['held', 'too'].map((of) => placed(`of ${of}`, 1, of)),
    ],
  ]) {
    expect(() => numbers(...wrong)).toThrow();
  }
});

function outcomeOf(vector: RunVector): object {
  const { aep_keys: aepKeys, log_origin: origin, log_vkey: vkey } = vector.trust;
  const log = vkey === undefined || origin === undefined ? undefined : { vkey, origin };
  const trust = { ...(aepKeys && { aepKeys }), ...(log && { log }) };
  const result = verifyRun(runPackageOf(vector), trust, nativeCrypto);
  if (!result.decidable) return { undecidable: result.cause };
  const { complete, faults, missing } = result;
  return complete ? { complete, missing } : { complete, fault: faults[0]?.code };
}

describe('vectors of packages', () => {
  it.each(runVectors.cases)('give the expected result: $name', (vector) => {
    expect(outcomeOf(vector)).toEqual(vector.expected);
  });

  it('cover every fault, and the specification has the code of each fault', () => {
    const faults = runVectors.cases.flatMap(({ expected }) =>
      'fault' in expected ? [expected.fault] : [],
    );
    expect(new Set(faults)).toEqual(new Set(RUN_FAULTS));
    const page = readFileSync(join(packageRoot, 'spec/log.md'), 'utf8');
    for (const code of RUN_FAULTS) expect(page).toContain(`\`${code}\``);
  });
});
