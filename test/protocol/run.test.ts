import { expect, it } from 'vitest';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { subjectOf } from '#protocol/aep';
import { fromBase64, fromUtf8 } from '#protocol/bytes';
import { membersHash } from '#protocol/run';
import { agentEnvelopeSchema } from '#protocol/schemas/admission';
import { aepSchema } from '#protocol/schemas/aep';
import { packageRoot } from '#runtime/process/files';
import { sha256 } from '../fixtures/leaves.js';

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
