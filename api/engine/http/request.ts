import type * as z from 'zod';
import type { Request, RequestHandler, Response } from 'express';
import type { Scope } from '#protocol/schemas/api-keys';
import {
  specOf,
  type Call,
  type EngineDeps,
  type Operation,
  type OperationSpec,
  type SpecOf,
} from '../operation.js';
import { pacedLimiter } from '#runtime/concurrency';
import { readSingleHeader, type Caller } from './authenticate.js';
import { at, Problem, type ProblemCode, PROBLEMS } from './problem.js';
import type { AgentEnvelope, ExecuteRequest } from '#protocol/schemas/admission';
import { SCHEMA } from '#protocol/schemas/ids';
import type { IncomingMessage } from 'node:http';
import { ProtocolError } from '#protocol/errors';
import { isObject, type JsonValue, parseStrict, pointerStep } from '#protocol/json';
import {
  bodyFaults,
  type BodyFault,
  bounded,
  problemOf,
  wrongVersion,
} from '#protocol/schemas/body-faults';
import { safeParse } from '#protocol/schemas/messages';
import { BodyRefusedError, readJsonBody } from '#runtime/http/json-body';

/** Checks admissions and batches before the body is read, in the order of the OpenAPI guide. */
export async function authorizeAdmission(
  { authenticate, ctx, requireCapacity }: EngineDeps,
  spec: OperationSpec,
  req: Request,
  res: Response,
): Promise<Caller> {
  const bearer = spec.acceptsBearer === true ? bearerKey(req) : undefined;
  const caller = await authenticate(req, res, bearer).catch((error: unknown) => {
    throw spec.acceptsBearer === true ? withBearer(error) : error;
  });
  if (ctx.admissionsPaused || !caller.environmentOpen) {
    throw new Problem(
      'lane_locked',
      `The operator has locked admissions in the ${caller.environment} environment. This request admitted nothing, but an earlier attempt may have. Send the request again later.`,
    );
  }
  if (bearer === undefined || req.get('x-svc-tenant-id') !== undefined) {
    requireTenantHeader(req, caller);
  }
  requireScope(caller, spec.scopes);
  requireKeyEnvironment(caller);
  if (!caller.allowlisted) throw new Problem('tenant_not_allowlisted');
  await requireCapacity();
  return caller;
}

/** Adds the Bearer challenge (RFC 6750, section 3) to a 401. */
function withBearer(error: unknown): unknown {
  if (!(error instanceof Problem) || error.code !== 'unauthenticated') return error;
  return new Problem(
    error.code,
    'Send a valid engine key as a bearer token in Authorization, or in X-Svc-Api-Key.',
    { headers: { 'WWW-Authenticate': 'Bearer realm="engine", ApiKey realm="engine"' } },
  );
}

/** The API key in an Authorization header (RFC 6750). */
function bearerKey(req: Request): string | undefined {
  const bearer = /^Bearer +(\S+) *$/i.exec(req.get('authorization') ?? '')?.[1];
  if (bearer !== undefined && req.get('x-svc-api-key') !== undefined) {
    throw new Problem('duplicate_header', 'Send the API key in one header only.');
  }
  return bearer;
}

/** Checks of admissions and batches after the body is read. Returns the idempotency key. */
export function readAdmissionHeaders(req: Request, spec: OperationSpec): string | null {
  requireAcceptable(req, spec.produces);
  requireApiVersion(req);
  const key = readSingleHeader(req, 'x-svc-idempotency-key');
  if (key !== undefined && !/^[\x20-\x7e]{1,255}$/.test(key)) {
    throw new Problem('invalid_idempotency_key');
  }
  return key ?? null;
}

export function hasScope(caller: Caller, scopes: readonly Scope[]): boolean {
  return [...scopes, 'admin'].some((scope) => caller.scopes.includes(scope));
}

const UTF_8 = /;[ \t]*charset="?utf-8"?/gi;

/** Throws a 406, before the request has an effect, if the client accepts none of the media types. */
export function requireAcceptable(req: Request, types: readonly [string, ...string[]]): string {
  // All text is UTF-8, but a media range with a parameter matches only a type that states the parameter.
  const { accept } = req.headers;
  if (accept?.includes('=') === true) req.headers.accept = accept.replace(UTF_8, '');
  const chosen = req.accepts([...types]);
  if (chosen === false) {
    throw new Problem(
      'not_acceptable',
      `The header Accept excludes every available media type. Accept ${types.join(' or ')}.`,
    );
  }
  return chosen;
}

function requireTenantHeader(req: Request, caller: Caller): void {
  const tenantId = readSingleHeader(req, 'x-svc-tenant-id');
  if (tenantId === undefined) throw new Problem('tenant_header_missing');
  if (tenantId !== caller.tenantId) throw new Problem('tenant_mismatch');
}

/** Rejects a body whose `tenant_id`, at this pointer, is not the caller's. */
export function requireOwnTenant(caller: Caller, tenantId: string, pointer = '/tenant_id'): void {
  if (tenantId === caller.tenantId) return;
  throw new Problem('tenant_body_mismatch', at(pointer, 'must be the tenant of the API key'));
}

function requireScope(caller: Caller, scopes: readonly Scope[]): void {
  if (!hasScope(caller, scopes)) {
    throw new Problem(
      'scope_missing',
      `This operation requires the scope ${scopes.join(' or ')}. Use a key that has it.`,
    );
  }
}

function requireApiVersion(req: Request): void {
  const version = readSingleHeader(req, 'svc-api-version');
  if (version !== undefined && version !== 'v1') throw new Problem('unsupported_api_version');
}

/**
 * An operation that needs an API key and is not an admission. Its checks run in the order 401, 429, 403, 400, 406;
 * admissions have more checks, in a different order.
 */
export function tenantOperation(partial: SpecOf, handle: (call: Call) => Promise<void>): Operation {
  const spec = specOf(partial);
  const handler = (deps: EngineDeps): RequestHandler => {
    return async (req, res) => {
      const caller = await deps.authenticate(req, res);
      requireTenantHeader(req, caller);
      requireScope(caller, spec.scopes);
      requireApiVersion(req);
      const type = requireAcceptable(req, spec.produces);
      const { tenantNo } = caller;
      const inTenant: Call['inTenant'] = (work, ...args) =>
        deps.queryTenant(tenantNo, work, ...args);
      await handle({ ...deps, req, res, caller, type, inTenant });
    };
  };
  return { spec, handler };
}

const slowReads = pacedLimiter({ total: 4, perOwner: 1, maxWaiting: 1_000, timeoutMs: 10_000 });

/** Limits requests with long bodies. Few may wait, because each has a body of up to 256 KiB in memory. */
const longBodies = pacedLimiter({ total: 4, perOwner: 1, maxWaiting: 32, timeoutMs: 10_000 });

/** Limits reads of up to 10,000 proofs: a tenant runs one at a time. @throws BusyError */
export const limitSlowRead = ({ tenantNo }: Caller, work: () => Promise<void>): Promise<void> =>
  slowReads(tenantNo, work);

/** An operation whose handler gets the parsed body. `version`: as for `parseBody`. */
export function documentOperation<T>(
  spec: SpecOf & { body: { schema: z.ZodType<T> } },
  handle: (call: Call, document: T) => Promise<void>,
  version?: string,
): Operation {
  const { limit, schema } = spec.body;
  return tenantOperation(spec, async (call) => {
    const bytes = await readBody(call.req, limit);
    const parseAndHandle = async () => handle(call, parseBody(schema, bytes, version));
    await (bytes.length > BODY_LIMIT
      ? longBodies(call.caller.tenantNo, parseAndHandle)
      : parseAndHandle());
  });
}

/** Throws a 403 when the key is restricted to an environment that is not its tenant's. */
export function requireKeyEnvironment({ restriction, environment }: Caller): void {
  const allowed = restriction?.environment;
  if (allowed === undefined || allowed === environment) return;
  throw new Problem(
    'key_restricted',
    `This API key admits only in the ${allowed} environment, and its tenant is in ${environment}. This request admitted nothing. Use another key.`,
  );
}

/**
 * Throws a 403 when the restriction of the key excludes this request.
 *
 * @param place pointer for the problem, if the client sent a body from which this request was derived
 */
export function requireKeyAllows(
  { restriction }: Pick<Caller, 'restriction'>,
  body: ExecuteRequest | AgentEnvelope,
  place?: string,
): void {
  if (restriction === null) return;
  const { agent_id: agentId, actions, tools } = restriction;
  const isExecute = !('kind' in body);
  if (isExecute && (agentId !== undefined || tools !== undefined)) {
    throw restricted(place ?? '/schema_version', 'agent envelopes,', SCHEMA.agentEnvelope);
  }
  if (!isExecute && agentId !== undefined && body.agent.id !== agentId) {
    throw restricted(place ?? '/agent/id', 'the agent', agentId);
  }
  // An `outcome` and a `close` have no action and no tool.
  if (!('action' in body)) return;
  if (actions?.some((pattern) => matchesPattern(pattern, body.action)) === false) {
    throw restricted(place ?? '/action', 'the actions', ...actions);
  }
  const tool = 'tool' in body ? body.tool : undefined;
  if (tools?.some((pattern) => tool !== undefined && matchesPattern(pattern, tool)) === false) {
    throw restricted(place ?? '/tool', 'the tools', ...tools);
  }
}

/** Limit of a list in a message, in characters: a batch may store the message for each of 10,000 items. */
const LONGEST_LIST = 200;

function restricted(pointer: string, what: string, ...allowed: string[]): Problem {
  const whole = allowed.join(', ');
  const cut = Array.from(whole.slice(0, 2 * LONGEST_LIST))
    .slice(0, LONGEST_LIST)
    .join('');
  const list = cut === whole ? whole : `${cut} …`;
  return new Problem(
    'key_restricted',
    `This API key admits only ${what} ${list}. This request admitted nothing. Use another key.`,
    at(pointer, `must match one of: ${list}`),
  );
}

/**
 * Whether `name` matches `pattern`, in which `*` matches any characters. The first match of each part
 * is enough, and takes linear time; a regular expression could take exponential time.
 */
export function matchesPattern(pattern: string, name: string): boolean {
  const [first = '', ...parts] = pattern.split('*');
  const last = parts.pop();
  if (last === undefined) return name === first;
  if (!name.startsWith(first)) return false;
  let end = first.length;
  for (const part of parts) {
    const found = name.indexOf(part, end);
    if (found === -1) return false;
    end = found + part.length;
  }
  return name.length - last.length >= end && name.endsWith(last);
}

/** @param version the supported version, for union schemas: their errors do not name the version */
export function parseBody<T>(schema: z.ZodType<T>, bytes: Uint8Array, version?: string): T {
  const value = parseJson(bytes);
  const count = countMembers(value);
  if (count > MOST_IN_BODY) throw tooMany('', `${MOST_IN_BODY} members and items in all`);
  return parseDocument(schema, value, version);
}

/** Limit of members of an object and of items of an array; admissions and batches have their own limits. */
const MOST_MEMBERS = 1_000;
/** Limit of the members and items of all objects and arrays of a body. */
const MOST_IN_BODY = 10_000;

/** Limits the number of faults, because zod reports one per item, and 120,000 would block the event loop for a second. */
function countMembers(value: JsonValue, pointer = ''): number {
  if (typeof value !== 'object' || value === null) return 0;
  const members = Object.entries(value);
  if (members.length > MOST_MEMBERS) throw tooMany(pointer, `${MOST_MEMBERS} members or items`);
  const counts = members.map(([name, one]) => countMembers(one, pointer + pointerStep(name)));
  return counts.reduce((sum, count) => sum + count, members.length);
}

const tooMany = (pointer: string, most: string): Problem =>
  violation([
    { code: 'invalid_field', pointer: bounded(pointer), detail: `expected at most ${most}` },
  ]);

/** The validation step of `parseBody`, for bodies whose schema depends on their content. */
export function parseDocument<T>(schema: z.ZodType<T>, value: JsonValue, version?: string): T {
  const result = safeParse(schema, value);
  if (result.success) return result.data;
  throw violation(bodyFaults(result.error, value, version));
}

export function parseJson(bytes: Uint8Array): JsonValue {
  try {
    return parseStrict(bytes);
  } catch (error) {
    if (!(error instanceof ProtocolError) || !Object.hasOwn(PROBLEMS, error.code)) throw error;
    const detail = bytes.length === 0 ? 'the body is empty' : error.message;
    throw new Problem(error.code as ProblemCode, `The body is not acceptable JSON: ${detail}.`, {
      errors: [{ pointer: bounded(error.pointer ?? ''), detail }],
      cause: error,
    });
  }
}

/** The problem of a body whose version is not in `versions`. Without a schema, no other faults are known. */
export function unknownVersion(value: JsonValue, versions: readonly string[]): Problem {
  if (!isObject(value)) {
    return violation([{ code: 'invalid_field', pointer: '', detail: 'expected an object' }]);
  }
  return violation([wrongVersion(value, versions.map((version) => `"${version}"`).join(' or '))]);
}

function violation(found: BodyFault[]): Problem {
  const { code, detail, errors } = problemOf(found);
  return new Problem(code, detail, { errors });
}

/** Limit in bytes: the longest valid body with every character escaped, but without extra white space, fits. */
export const BODY_LIMIT = 64 * 1024;

export function readBody(req: IncomingMessage, limit = BODY_LIMIT): Promise<Buffer> {
  return readJsonBody(req, limit).catch((error: unknown) => {
    throw bodyProblem(error);
  });
}

export function bodyProblem(error: unknown): unknown {
  if (!(error instanceof BodyRefusedError)) return error;
  return new Problem(error.code, error.message, { headers: error.headers, cause: error });
}
