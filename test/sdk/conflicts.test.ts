import { expect, it } from 'vitest';
import { PROBLEMS } from '#api/engine/http/problem';
import { httpError } from '#sdk/http/answers';

/** Codes of conflicts after which the same request can succeed. */
const TEMPORARY = ['pending_checkpoint', 'pending_verdict', 'run_incomplete', 'run_open'];

it.each(Object.entries(PROBLEMS).filter(([, [status]]) => status === 409))(
  'SDK > reports a 409 %s as retryable only if the conflict can end',
  (code, [status, title]) => {
    const problem = { type: `urn:svc:problem:${code}`, title, status, detail: title, code };
    const bytes = Buffer.from(JSON.stringify({ ...problem, request_id: 'one' }));
    const headers = new Headers({ 'content-type': 'application/problem+json' });
    const error = httpError({ status, headers, bytes });
    const isTemporary = TEMPORARY.includes(code);
    expect(error.problem?.code).toBe(code);
    expect([error.code, error.retryable]).toEqual(
      isTemporary ? ['not_ready', true] : ['invalid_request', false],
    );
  },
);
