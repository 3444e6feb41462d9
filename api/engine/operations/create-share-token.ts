import { randomBytes } from 'node:crypto';
import type { Request, Response } from 'express';
import { utf8 } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/canonical-json';
import { hashHex } from '#protocol/hash';
import { SCHEMA } from '#protocol/schemas/ids';
import {
  createdShareTokenSchema,
  shareTokenRequestSchema,
  type CreatedShareToken,
  type ShareTokenRequest,
} from '#protocol/schemas/lifecycle';
import { formatTime, parseTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto/node';
import { createShareToken as storeShareToken, type ShareTarget } from '#sql/lifecycle/share-tokens';
import { authorize } from '../http/authorize.js';
import type { EngineDeps, Operation, OperationSpec } from '../operation.js';
import { parseBody, readBody } from '../http/parse-body.js';
import { Problem } from '../http/problem.js';
import { sendJson } from '../http/send-json.js';
import { targetMembers, timeOrNull } from '../lifecycle/documents.js';

const TOKEN_BYTES = 32;

const spec: OperationSpec = {
  id: 'createShareToken',
  method: 'post',
  path: '/v1/share-tokens',
  tag: 'Lifecycle',
  summary: 'Create a share token',
  description:
    'Only this response shows the token: the registry stores its SHA-256. Sending the same body ' +
    'again creates another token. If the response is lost, revoke the token by its hash from the ' +
    'list. `/api/public/verify/share/{token}` of the public API resolves the token about two ' +
    'seconds later, until it is revoked or expires. `/?id={token}` is the page for people.',
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
  produces: ['application/json'],
  responses: {
    201: {
      description: 'Created. Only this response shows the token.',
      content: { 'application/json': createdShareTokenSchema },
    },
  },
  problems: ['share_target_unknown', 'artifact_absent', 'expiry_over'],
};

export const createShareTokenOperation: Operation = { spec, handler: createShareToken };

function createShareToken(deps: EngineDeps) {
  const { ctx } = deps;
  return async (req: Request, res: Response): Promise<void> => {
    const { caller } = await authorize(deps, spec, req, res);
    const body = await readBody(req, ctx.bodyLimit);
    const { document } = parseBody(shareTokenRequestSchema, body, SCHEMA.shareTokenRequest);
    const target = targetOf(document);
    const expiresAt = document.expires_at === undefined ? null : parseTime(document.expires_at);
    const token = `share_${randomBytes(TOKEN_BYTES).toString('base64url')}`;
    const tokenHash = hashHex(nativeSha256, utf8(token));
    const created = await ctx.tenantSql.run(caller.tenantNo, (sql) =>
      storeShareToken(sql, caller.tenantNo, {
        tokenHash: Buffer.from(tokenHash, 'hex'),
        keyNo: caller.keyNo,
        target,
        expiresAt,
      }),
    );
    if (created.outcome !== 'created') throw rejection(created.outcome, target);
    const answer: CreatedShareToken = {
      schema_version: SCHEMA.shareToken,
      share_token: token,
      token_hash: tokenHash,
      ...targetMembers(target),
      created_at: formatTime(created.createdAt),
      expires_at: timeOrNull(expiresAt),
    };
    sendJson(res, 201, canonicalBytes(answer));
  };
}

function targetOf(request: ShareTokenRequest): ShareTarget {
  return request.artifact_kind === 'package'
    ? { artifactKind: request.artifact_kind, packageId: request.package_id }
    : { artifactKind: request.artifact_kind, proofId: request.proof_id };
}

function rejection(
  outcome: 'unknown_target' | 'absent_artifact' | 'expiry_over',
  { artifactKind }: ShareTarget,
): Problem {
  switch (outcome) {
    case 'unknown_target':
      return artifactKind === 'package'
        ? unknownTarget('/package_id', 'package')
        : unknownTarget('/proof_id', 'proof');
    case 'absent_artifact':
      return new Problem(
        'artifact_absent',
        'A denial or an outcome has no artifact except its proof. Share the proof instead.',
        {
          errors: [
            { pointer: '/artifact_kind', detail: 'must be proof: this is a denial or an outcome' },
          ],
        },
      );
    case 'expiry_over':
      return new Problem(
        'expiry_over',
        'The token would expire at once. Send a later expires_at.',
        {
          errors: [{ pointer: '/expires_at', detail: 'must be in the future' }],
        },
      );
  }
}

function unknownTarget(pointer: string, what: string): Problem {
  return new Problem(
    'share_target_unknown',
    `This tenant has no ${what} with that id. Check the id.`,
    {
      errors: [{ pointer, detail: `must be the id of a ${what} of this tenant` }],
    },
  );
}
