import { verifyRegistration } from '#protocol/approvals';
import {
  approverListSchema,
  approverSchema,
  registrationSchema,
} from '#protocol/schemas/approvals';
import { SCHEMA } from '#protocol/schemas/ids';
import { HASH_PATTERN } from '#protocol/schemas/primitives';
import { formatTime } from '#protocol/time';
import { nativeCrypto } from '#runtime/crypto/node';
import {
  type ApproverRow,
  listTenantApprovers,
  registerTenantApprover,
  retireTenantApprover,
} from '#sql/lifecycle/approvers';
import { documentOperation, requireOwnTenant, tenantOperation } from '../http/request.js';
import { listOperation } from '../http/paging.js';
import { at, Problem } from '../http/problem.js';
import { sendJson } from '../http/respond.js';
import { json } from '../operation.js';

export const registerApproverOperation = documentOperation(
  {
    id: 'registerApprover',
    method: 'post',
    path: '/v1/approvers',
    tag: 'Keys',
    summary: 'Register an approver',
    description:
      'Registers the key of an approver, whose approvals count from the next log entry on. The registration is ' +
      'signed with that key and stays private. A key entry of the log contains the hash of the registration, which ' +
      'auditors can pin. ' +
      'Registering again changes nothing.',
    scopes: ['approvers'],
    body: {
      schema: registrationSchema,
      examples: {
        ed25519: {
          schema_version: SCHEMA.approver,
          tenant_id: 'demo',
          approver: 'ops-lead',
          public_key: {
            kty: 'OKP',
            crv: 'Ed25519',
            x: 'ebVWLo_mVPlAeLES6KmLp5AfhTrmlb7X4OORC60ElmQ',
          },
          webauthn: null,
          salt: '8c3f5e1d7a9b2c4d6e8f0a1b3c5d7e9f8c3f5e1d7a9b2c4d6e8f0a1b3c5d7e9f',
          signature: {
            type: 'ed25519',
            sig: 'rIN3GNoyahwcNn_qXD8S95RqpIeTS2ytnWT68Jb3RGmB3jc4eH_3AJh9iAF4e5u_weB25-i9BXrvLTOMzCkpCQ',
          },
        },
      },
    },
    responses: { 201: json('The approver, registered now or before.', approverSchema) },
    problems: [
      'tenant_body_mismatch',
      'registration_rejected',
      'approver_retired',
      'too_many_approvers',
    ],
  },
  async ({ caller, inTenant, res }, registration) => {
    requireOwnTenant(caller, registration.tenant_id);
    if (!verifyRegistration(nativeCrypto, registration)) {
      throw new Problem(
        'registration_rejected',
        at('/signature', 'does not verify under public_key'),
      );
    }
    const approver = await inTenant(registerTenantApprover, caller.keyNo, registration);
    if (approver === null) throw new Problem('unauthenticated');
    if (approver === 'too_many') throw new Problem('too_many_approvers');
    if (approver.state === 'retired') throw new Problem('approver_retired');
    sendJson(res, 201, approverDocument(approver));
  },
);

const membersOf = (approver: ApproverRow) => ({
  registration_hash: approver.registrationHash,
  registration: approver.registration,
  state: approver.state,
  leaf_index: approver.leafIndex,
  created_by: approver.createdBy,
  created_at: formatTime(approver.createdAt.getTime()),
});

const approverDocument = (approver: ApproverRow) => ({
  schema_version: SCHEMA.tenantApprover,
  ...membersOf(approver),
});

export const listApproversOperation = listOperation(
  {
    id: 'listApprovers',
    path: '/v1/approvers',
    tag: 'Keys',
    summary: 'List approvers',
    description:
      'Lists your approvers, newest first, including retired approvers and approvers that the operator registered.',
    scopes: ['approvers'],
    page: json('A page of approvers.', approverListSchema),
  },
  {
    name: 'approvers',
    version: SCHEMA.tenantApproverList,
    documentOf: membersOf,
    id: HASH_PATTERN,
    placeOf: ({ createdAt, registrationHash }) => ({
      createdAt: createdAt.getTime(),
      id: registrationHash,
    }),
    read: listTenantApprovers,
  },
);

export const retireApproverOperation = tenantOperation(
  {
    id: 'retireApprover',
    method: 'post',
    path: '/v1/approvers/{registration_hash}/retire',
    tag: 'Keys',
    summary: 'Retire an approver',
    description:
      'Retires a registration permanently, with a key entry of the log. Approvals under the registration ' +
      'have no effect, except that second decisions made before stay valid. Retiring again changes nothing.',
    scopes: ['approvers'],
    responses: { 200: json('The retired approver.', approverSchema) },
    problems: ['approver_not_found'],
  },
  async ({ caller, inTenant, req, res }) => {
    const hash = String(req.params['registration_hash']);
    const approver = HASH_PATTERN.test(hash)
      ? await inTenant(retireTenantApprover, caller.keyNo, hash)
      : 'unknown';
    if (approver === 'unknown') throw new Problem('approver_not_found');
    if (approver === null) throw new Problem('unauthenticated');
    sendJson(res, 200, approverDocument(approver));
  },
);
