import { describe, expect, it } from 'vitest';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { subjectOf } from '#protocol/aep';
import { fromBase64, fromUtf8 } from '#protocol/bytes';
import { membersHash, RUN_FAULTS, verifyRun } from '#protocol/run';
import { agentEnvelopeSchema } from '#protocol/schemas/admission';
import { aepSchema } from '#protocol/schemas/aep';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { packageRoot } from '#runtime/process/files';
import { sha256 } from '../fixtures/leaves.js';
import { runPackageOf, runVectors, type RunVector } from '../fixtures/worked-run.js';

interface Vectors {
  requests: { kind: string }[];
  run: {
    close: { proof_record: { envelope: { payload: string } } };
    members: { entry: { proof_id: string; aep_hash: string } }[];
  };
}

it('close of a run > has the AEP subject and the members hash of the Python implementation', () => {
  const file = join(packageRoot, 'protocol/vectors/next.json');
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

function outcomeOf(vector: RunVector): object {
  const { aep_keys: aepKeys, log_origin: origin, log_vkey: vkey } = vector.trust;
  const log = vkey === undefined || origin === undefined ? undefined : { vkey, origin };
  const crypto = { sha256: nativeSha256, verify: nativeVerify };
  const trust = { ...(aepKeys && { aepKeys }), ...(log && { log }) };
  const result = verifyRun(runPackageOf(vector), trust, crypto);
  if (!result.decidable) return { undecidable: result.cause };
  const { complete, faults, missing } = result;
  return complete ? { complete, missing } : { complete, fault: faults[0]?.code };
}

describe('vectors of packages', () => {
  it.each(runVectors.cases)('$name', (vector) => {
    expect(outcomeOf(vector)).toEqual(vector.expected);
  });

  it('cover every fault, and each is documented', () => {
    const faults = runVectors.cases.flatMap(({ expected }) =>
      'fault' in expected ? [expected.fault] : [],
    );
    expect(new Set(faults)).toEqual(new Set(RUN_FAULTS));
    const page = readFileSync(join(packageRoot, 'spec/log.md'), 'utf8');
    for (const code of RUN_FAULTS) expect(page).toContain(`\`${code}\``);
  });
});
