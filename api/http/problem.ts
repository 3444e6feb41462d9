import type { ProblemTable } from '../openapi/description.js';

export interface ProblemMember {
  /** RFC 6901; the empty string is the whole body. */
  pointer: string;
  detail: string;
}

export interface ProblemOptions {
  errors?: ProblemMember[];
  members?: Record<string, unknown>;
  headers?: Record<string, string>;
  cause?: unknown;
}

/** An error response (RFC 9457), thrown by any handler. Each API defines its own codes. */
export abstract class ApiProblem<Code extends string> extends Error {
  override readonly name = 'Problem';
  readonly status: number;
  private readonly title: string;

  protected constructor(
    table: Record<Code, ProblemTable[string]>,
    readonly code: Code,
    detail: string,
    readonly options: ProblemOptions,
  ) {
    super(detail, options.cause === undefined ? undefined : { cause: options.cause });
    [this.status, this.title] = table[code];
  }

  /** RFC 9457. `type` is a URN, because a URL would change with the deployment. */
  document(requestId?: string): Record<string, unknown> {
    const { code, status, title, message, options } = this;
    return {
      type: `urn:svc:problem:${code}`,
      title,
      status,
      detail: message,
      code,
      ...(requestId !== undefined && { request_id: requestId }),
      ...(options.errors && { errors: options.errors }),
      ...options.members,
    };
  }
}
