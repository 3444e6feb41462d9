import { buildReceipt } from '#protocol/aep';
import { fromBase64, toBase64, utf8 } from '#protocol/bytes';
import { parseCheckpoint } from '#protocol/checkpoint';
import { proofEntryBytes } from '#protocol/entries';
import { hashHex } from '#protocol/hash';
import { leafHash } from '#protocol/merkle';
import { SCHEMA } from '#protocol/schemas/ids';
import { formatTlogProof } from '#protocol/tlog-proof';
import { nativeSha256 as sha256 } from '#runtime/crypto/node';
import type { WorkedExample } from '../../openapi/description.js';
import { exampleExport } from '../../openapi/example-export.js';

/** Documents derived from one exported proof, so that hashes, signatures and path in the examples verify. */
export function workedExample(): WorkedExample {
  const { aep, entry, envelope, inclusion, proof_record: record, proof_id } = exampleExport;
  const { checkpoint, leaf_index, path, tree_size } = inclusion;
  const facts = { proof_id, request_hash: aep.request_hash, effect: 'ADMIT' } as const;
  const leaf = toBase64(leafHash(sha256, proofEntryBytes(entry)));
  const root = toBase64(
    parseCheckpoint(checkpoint.slice(0, checkpoint.lastIndexOf('\n\n') + 1)).root,
  );
  const action = 'action' in aep.subject ? aep.subject.action : '';
  return {
    documents: {
      ExecuteReceipt: buildReceipt(sha256, { ...facts, lane: 'execute' }),
      AgentReceipt: buildReceipt(sha256, {
        ...facts,
        lane: 'agent',
        request_hash: hashHex(sha256, utf8('admission envelope')),
      }),
      PolicyDeniedProblem: {
        receipt: buildReceipt(sha256, { ...facts, lane: 'execute', effect: 'DENY' }),
        reasons: ['audit-log-is-kept'],
        sentences: {
          'audit-log-is-kept':
            'Neither the action DELETE_AUDIT_LOG nor a tool of that name is ever admitted.',
        },
      },
      Aep: aep,
      AepSubject: aep.subject,
      DsseEnvelope: envelope,
      ProofRecord: record,
      ProofEntry: entry,
      ProofExport: exampleExport,
      VerdictStatement: exampleExport.verdict,
      InclusionProof: inclusion,
      InclusionResponse: {
        schema_version: SCHEMA.inclusion,
        proof_id,
        leaf_index,
        leaf_hash: leaf,
        entry,
        state: 'included',
        root,
        inclusion,
      },
      ProofId: proof_id,
      PackageId: `pkg_${proof_id}`,
      ShareToken: `share_${exampleExport.keys[0].public_key}`,
      Time: aep.accepted_at,
      Hash: aep.request_hash,
      KeyId: aep.key_id,
      PublicKey: exampleExport.keys[0].public_key,
      Action: action,
      TenantId: aep.tenant_id,
    },
    members: {
      leaf_index,
      log_size: tree_size,
      tree_size,
      leaf_hash: leaf,
      root,
      aep_hash: record.aep_hash,
      proof_record_hash: entry.proof_record_hash,
      request_hash: aep.request_hash,
      response_hash: record.response_hash,
      policy_digest: aep.policy.digest,
      input_hash: aep.policy.input_hash,
      log_vkey: exampleExport.log_vkey,
      // Cursors are opaque, so the example has none.
      next_cursor: null,
    },
    texts: {
      'text/plain': formatTlogProof({ index: leaf_index, path: path.map(fromBase64), checkpoint }),
    },
  };
}
