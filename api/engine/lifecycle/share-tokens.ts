import { randomBytes } from 'node:crypto';
import { toHex, utf8 } from '#protocol/bytes';
import { hashHex } from '#protocol/hash';
import { SCHEMA } from '#protocol/schemas/ids';
import {
  createdShareTokenSchema,
  shareTokenListSchema,
  shareTokenRequestSchema,
  type ListedShareToken,
  type ShareTokenRequest,
} from '#protocol/schemas/lifecycle';
import { HASH_PATTERN } from '#protocol/schemas/primitives';
import { formatTime, parseTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto/node';
import {
  createShareToken,
  listShareTokens,
  revokeShareToken,
  type ShareTarget,
  type ShareToken,
} from '#sql/lifecycle/share-tokens';
import { listOperation } from '../http/paging.js';
import { at, Problem } from '../http/problem.js';
import { sendJson } from '../http/respond.js';
import { json } from '../operation.js';
import { documentOperation, tenantOperation } from '../http/request.js';
import { artifactAbsent } from './revocations.js';

const TOKEN_BYTES = 32;

export const createShareTokenOperation = documentOperation(
  {
    id: 'createShareToken',
    method: 'post',
    path: '/v1/share-tokens',
    tag: 'Lifecycle',
    summary: 'Create a share token',
    description:
      'Only this response shows the token: the registry stores its SHA-256. Sending the same body ' +
      'again creates another token. If the response is lost, revoke the token by its hash from the ' +
      'list. `/api/public/verify/share/{token}` of the public API resolves the token about two ' +
      'seconds later, until it is revoked or expires. `/?id={token}` of the public API shows the artifact as a web page.',
    scopes: ['lifecycle'],
    body: {
      schema: shareTokenRequestSchema,
      examples: {
        proof: {
          schema_version: SCHEMA.shareTokenRequest,
          artifact_kind: 'proof',
          proof_id: '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f',
          expires_at: '2036-12-31T23:59:59.000Z',
        },
        package: {
          schema_version: SCHEMA.shareTokenRequest,
          artifact_kind: 'package',
          package_id: 'pkg_019aa2c1e07b7c0f8a3e5d6b7c8d9e0f',
        },
      },
    },
    responses: {
      201: json('Created. Only this response shows the token.', createdShareTokenSchema),
    },
    problems: ['share_target_unknown', 'artifact_absent', 'expiry_over'],
  },
  async ({ caller, inTenant, res }, document) => {
    const target = targetOf(document);
    const expiresAt = document.expires_at === undefined ? null : parseTime(document.expires_at);
    const token = `share_${randomBytes(TOKEN_BYTES).toString('base64url')}`;
    const tokenHash = hashHex(nativeSha256, utf8(token));
    const created = await inTenant(createShareToken, {
      tokenHash: Buffer.from(tokenHash, 'hex'),
      keyNo: caller.keyNo,
      target,
      expiresAt,
    });
    if (created.outcome !== 'created') throw rejection(created.outcome, target);
    sendJson(res, 201, {
      schema_version: SCHEMA.shareToken,
      share_token: token,
      token_hash: tokenHash,
      ...targetMembers(target),
      created_at: formatTime(created.createdAt),
      expires_at: timeOrNull(expiresAt),
    });
  },
  SCHEMA.shareTokenRequest,
);

function targetOf(request: ShareTokenRequest): ShareTarget {
  return request.artifact_kind === 'package'
    ? { artifactKind: request.artifact_kind, packageId: request.package_id }
    : { artifactKind: request.artifact_kind, proofId: request.proof_id };
}

function targetMembers(target: ShareTarget) {
  return target.artifactKind === 'package'
    ? { artifact_kind: target.artifactKind, package_id: target.packageId }
    : { artifact_kind: target.artifactKind, proof_id: target.proofId };
}

const timeOrNull = (time: number | null): string | null =>
  time === null ? null : formatTime(time);

function rejection(
  outcome: 'unknown_target' | 'absent_artifact' | 'expiry_over',
  { artifactKind }: ShareTarget,
): Problem {
  switch (outcome) {
    case 'unknown_target': {
      const kind = artifactKind === 'package' ? 'package' : 'proof';
      return new Problem(
        'share_target_unknown',
        `This tenant has no ${kind} with that id. Check the id.`,
        at(`/${kind}_id`, `must be the id of a ${kind} of this tenant`),
      );
    }
    case 'absent_artifact':
      return artifactAbsent('Share');
    case 'expiry_over':
      return new Problem('expiry_over', at('/expires_at', 'must be in the future'));
  }
}

export const listShareTokensOperation = listOperation(
  {
    id: 'listShareTokens',
    path: '/v1/share-tokens',
    tag: 'Lifecycle',
    summary: 'List share tokens',
    description: 'Lists the hashes of share tokens, newest first, and never the tokens.',
    scopes: ['read', 'lifecycle'],
    page: json(
      'A page of share tokens, including expired and revoked tokens.',
      shareTokenListSchema,
    ),
  },
  {
    name: 'share_tokens',
    version: SCHEMA.shareTokenList,
    documentOf: listed,
    id: HASH_PATTERN,
    placeOf: ({ createdAt, tokenHash }) => ({ createdAt, id: toHex(tokenHash) }),
    read: listShareTokens,
  },
);

function listed(token: ShareToken): ListedShareToken {
  return {
    token_hash: toHex(token.tokenHash),
    ...targetMembers(token.target),
    created_at: formatTime(token.createdAt),
    expires_at: timeOrNull(token.expiresAt),
    revoked_at: timeOrNull(token.revokedAt),
  };
}

export const revokeShareTokenOperation = tenantOperation(
  {
    id: 'revokeShareToken',
    method: 'delete',
    path: '/v1/share-tokens/{token_hash}',
    tag: 'Lifecycle',
    summary: 'Revoke a share token',
    description:
      'Revokes the token permanently. The shared artifact does not change. Revoking again changes ' +
      'nothing.',
    scopes: ['lifecycle'],
    responses: { 204: { description: 'The token is revoked.' } },
    problems: ['share_token_not_found'],
  },
  async ({ caller, inTenant, req, res }) => {
    const hex = String(req.params['token_hash']);
    const tokenHash = Buffer.from(hex, 'hex');
    const revoked =
      HASH_PATTERN.test(hex) &&
      (await inTenant(revokeShareToken, { tokenHash, keyNo: caller.keyNo }));
    if (!revoked) throw new Problem('share_token_not_found');
    res.status(204).end();
  },
);
