import type { Request, Response } from 'express';
import { toHex } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/canonical-json';
import { SCHEMA } from '#protocol/schemas/ids';
import { shareTokenListSchema } from '#protocol/schemas/lifecycle';
import { HASH_PATTERN } from '#protocol/schemas/primitives';
import { listShareTokens as readShareTokens, type ShareToken } from '#sql/lifecycle/share-tokens';
import { authorize } from '../http/authorize.js';
import type { EngineDeps, Operation, OperationSpec } from '../operation.js';
import { pageOf, pageQuerySchema, parseQuery, readPage } from '../http/paging.js';
import { sendJson } from '../http/send-json.js';
import { listedShareToken } from '../lifecycle/documents.js';

const spec: OperationSpec = {
  id: 'listShareTokens',
  method: 'get',
  path: '/v1/share-tokens',
  tag: 'Lifecycle',
  summary: 'List share tokens',
  description: 'Newest first. The list has the hashes of the tokens, never the tokens.',
  scopes: ['read', 'lifecycle'],
  query: pageQuerySchema,
  produces: ['application/json'],
  responses: {
    200: {
      description: 'A page of share tokens, including expired and revoked ones.',
      content: { 'application/json': shareTokenListSchema },
    },
  },
  problems: ['invalid_query'],
};

export const listShareTokensOperation: Operation = { spec, handler: listShareTokens };

function listShareTokens(deps: EngineDeps) {
  return async (req: Request, res: Response): Promise<void> => {
    const { caller } = await authorize(deps, spec, req, res);
    const page = pageOf(parseQuery(pageQuerySchema, req), HASH_PATTERN);
    const after = page.after && {
      createdAt: page.after.createdAt,
      tokenHash: Buffer.from(page.after.id, 'hex'),
    };
    const { members, nextCursor } = await readPage(
      page,
      ({ createdAt, tokenHash }: ShareToken) => ({ createdAt, id: toHex(tokenHash) }),
      (limit) =>
        deps.ctx.tenantSql.run(caller.tenantNo, (sql) =>
          readShareTokens(sql, caller.tenantNo, limit, after),
        ),
    );
    const list = {
      schema_version: SCHEMA.shareTokenList,
      share_tokens: members.map(listedShareToken),
      next_cursor: nextCursor,
    };
    sendJson(res, 200, canonicalBytes(list));
  };
}
