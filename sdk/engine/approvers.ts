import {
  approverListSchema,
  approverSchema,
  type Registration,
  type RegisteredApprover,
  registrationSchema,
} from '../../protocol/schemas/approvals.js';
import { hashSchema } from '../../protocol/schemas/primitives.js';
import { readAbout, validBody, validInput } from '../http/answers.js';
import type { EngineOptions } from '../options.js';
import { canonicalHash } from '../canonical.js';
import { openEngine } from './engine.js';
import { itemsOf } from './pages.js';

/**
 * `POST /v1/approvers`: registers an approver of the tenant, who may then approve. Needs a key with the
 * scope `approvers`. Registering an approver again changes nothing.
 *
 * Throws `invalid_request` (`approver_retired`, `too_many_approvers`) and others.
 */
export async function registerApproverHttp(
  options: EngineOptions,
  registration: Registration,
): Promise<RegisteredApprover> {
  const body = validBody(registrationSchema, registration);
  const request = { method: 'POST', path: '/v1/approvers', body, expected: [201] } as const;
  const answer = await openEngine(options).read(request);
  const expected = { registration_hash: canonicalHash(registration), state: 'active' } as const;
  return readAbout(answer, approverSchema, 'active approver', expected);
}

/** `GET /v1/approvers`: the approvers of the tenant, the newest first, including those that the operator registered. */
export const listApproversHttp = (
  options: EngineOptions,
): AsyncGenerator<Omit<RegisteredApprover, 'schema_version'>, void, undefined> =>
  itemsOf(options, '/v1/approvers', approverListSchema, (page) => page.approvers);

/**
 * `POST /v1/approvers/{registration_hash}/retire`: ends the approver permanently. Earlier second decisions
 * stay valid.
 */
export async function retireApproverHttp(
  options: EngineOptions,
  { registration_hash }: { registration_hash: string },
): Promise<RegisteredApprover> {
  const path = `/v1/approvers/${validInput(hashSchema, registration_hash)}/retire`;
  const answer = await openEngine(options).read({ method: 'POST', path });
  const expected = { registration_hash, state: 'retired' } as const;
  return readAbout(answer, approverSchema, 'retired approver', expected);
}
