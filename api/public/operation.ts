import type { IncomingMessage, ServerResponse } from 'node:http';
import type { OperationSpec } from '../openapi/operation-spec.js';
import type { PublicContext } from './context.js';
import type { ProblemCode } from './http/problem.js';

/** `last` is what the path has in place of its last parameter, decoded; '' when it has none. */
export type Handler = (
  ctx: PublicContext,
  req: IncomingMessage,
  res: ServerResponse,
  last: string,
) => void | Promise<void>;

/** One operation as it is documented. Router and OpenAPI are made of these and of nothing else. */
export interface PublicSpec extends OperationSpec<ProblemCode> {
  method: 'get' | 'post';
  tag: 'Verification' | 'Artifacts' | 'Log' | 'Page' | 'Service';
  /** The last parameter takes the rest of the path, slashes and all; it may be empty. */
  takesRest?: true;
  /** The answer is drawn from a snapshot, whose headers it has. */
  fromSnapshot?: true;
}

export interface Operation {
  spec: PublicSpec;
  handler: Handler;
}

const WITH_BODY: readonly ProblemCode[] = [
  'incomplete_body',
  'invalid_utf8',
  'malformed_json',
  'duplicate_key',
  'lone_surrogate',
  'nul_character',
  'integer_out_of_range',
  'too_deep',
  'unsupported_schema_version',
  'unknown_field',
  'invalid_field',
  'body_too_large',
  'unsupported_media_type',
  'unsupported_content_encoding',
];

/** Every problem that an operation can answer with. */
export function problemsOf({ body, problems }: PublicSpec): ProblemCode[] {
  return [...new Set([...(body === undefined ? [] : WITH_BODY), ...problems])];
}

/** Matches the paths of an operation as they are sent, before anything is decoded. */
export function pathPattern({ path, takesRest }: PublicSpec): RegExp {
  const last = path.lastIndexOf('{');
  const source = path
    .replaceAll('.', '\\.')
    .replaceAll(/\{\w+\}/g, (_parameter, at: number) =>
      takesRest && at >= last ? '[^]*' : '[^/]+',
    );
  return new RegExp(`^${source}$`);
}
