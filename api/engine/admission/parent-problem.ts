import { parentFault } from '#policy/parent';
import type { AgentEnvelope } from '#protocol/schemas/agent';
import type { Parent } from '#sql/parents';
import { Problem } from '../http/problem.js';

/** 422: the parent that is named must be one that the envelope can have. */
export function parentProblem(kind: AgentEnvelope['kind'], parent: Parent | null): Problem | null {
  const fault = parentFault(kind, parent);
  if (fault === null) return null;
  return new Problem(fault, DETAILS[fault], {
    errors: [{ pointer: '/parent_proof_id', detail: POINTED_AT[fault] }],
  });
}

const DETAILS = {
  parent_not_found:
    'This tenant has no proof of the id in parent_proof_id. One that was answered with 202 has to be settled first.',
  parent_not_admitted:
    'An outcome is that of an admitted action: its parent is neither a denial nor an outcome itself.',
} as const;

const POINTED_AT = {
  parent_not_found: 'must be the id of a proof of this tenant',
  parent_not_admitted: 'must be the id of an admitted action',
} as const;
