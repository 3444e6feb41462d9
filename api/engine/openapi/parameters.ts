import { PACKAGE_ID_PATTERN, PROOF_ID_PATTERN } from '#protocol/ids';
import { idempotencyKeySchema } from '#protocol/schemas/execute';
import { HASH_PATTERN, tenantIdSchema } from '#protocol/schemas/primitives';
import { z } from 'zod';
import type { OperationSpec } from '../operation.js';
import type { Components } from './components.js';
import type { JsonObject } from './json.js';
import type { OpenApiParameter } from './types.js';

const IN_PATH: Record<string, RegExp> = {
  proof_id: PROOF_ID_PATTERN,
  package_id: PACKAGE_ID_PATTERN,
  token_hash: HASH_PATTERN,
};

export function parametersOf(spec: OperationSpec, components: Components): OpenApiParameter[] {
  return [
    ...pathParameters(spec),
    ...queryParameters(spec, components),
    ...(spec.scopes.length > 0 ? KEYED : []),
    REQUEST_ID,
    ...('304' in spec.responses ? [IF_NONE_MATCH] : []),
    ...Object.entries(spec.headers ?? {}).map(([name, description]) =>
      header(name, description, HEADERS[name]),
    ),
  ];
}

function pathParameters({ path }: OperationSpec): OpenApiParameter[] {
  return [...path.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => ({
    name,
    in: 'path',
    required: true,
    schema: { type: 'string', ...(IN_PATH[name] && { pattern: IN_PATH[name].source }) },
  }));
}

function queryParameters(spec: OperationSpec, components: Components): OpenApiParameter[] {
  const { properties, required } = components.query(spec);
  return Object.entries(properties).map(([name, { description, ...schema }]) => ({
    name,
    in: 'query',
    required: required.includes(name),
    ...(typeof description === 'string' && { description }),
    schema,
  }));
}

function header(
  name: string,
  description: string,
  schema: JsonObject = { type: 'string' },
): OpenApiParameter {
  return { name, in: 'header', required: false, description, schema };
}

const KEYED: OpenApiParameter[] = [
  {
    ...header('X-Svc-Tenant-Id', 'The tenant that the key belongs to.', plain(tenantIdSchema)),
    required: true,
  },
  header('svc-api-version', 'The contract version. Absent means `v1`.', {
    type: 'string',
    enum: ['v1'],
  }),
];

const REQUEST_ID = header('X-Request-Id', 'An id of yours for this exchange; it comes back.');
const IF_NONE_MATCH = header('If-None-Match', 'An `ETag` that you have: 304 if it still holds.');

const HEADERS: Record<string, JsonObject> = {
  'X-Svc-Idempotency-Key': plain(idempotencyKeySchema),
};

function plain(schema: z.ZodType): JsonObject {
  const { type, pattern } = z.toJSONSchema(schema);
  return { type, pattern };
}
