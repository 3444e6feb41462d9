import { parseStrict } from '../../protocol/json.js';
import { openSchema } from '../../protocol/schemas/open-schema.js';
import { publicProblemSchema } from '../../protocol/schemas/problem.js';
import { SdkError, type SdkErrorCode, type ServiceProblem } from '../errors.js';
import type { Answer } from './attempt.js';
import { retryAfterMs } from './retry-after.js';

const BY_STATUS: Partial<Record<number, SdkErrorCode>> = {
  401: 'unauthenticated',
  403: 'forbidden',
  404: 'not_found',
  409: 'not_ready',
  410: 'gone',
  423: 'lane_locked',
  429: 'rate_limited',
  502: 'unavailable',
  503: 'unavailable',
  504: 'unavailable',
};

/** What anything between here and the service may say of itself, without a problem of the API. */
const SAID_BY_ANYBODY: ReadonlySet<number> = new Set([429, 500, 502, 503, 504]);

/** The error that an answer is which is no success. */
export function refusal(answer: Answer): SdkError {
  const { status } = answer;
  const problem = problemOf(answer);
  const after = retryAfterMs(answer.headers, Date.now());
  const details = {
    status,
    ...(problem !== undefined && { problem }),
    ...(after !== null && { retryAfterMs: after }),
  };
  if (problem === undefined && !SAID_BY_ANYBODY.has(status)) {
    return new SdkError(
      'unexpected_response',
      `status ${String(status)} without an error document of this API: is the address right?`,
      details,
    );
  }
  const code = BY_STATUS[status] ?? (status < 500 ? 'invalid_request' : 'engine_failed');
  const message = problem === undefined ? `status ${String(status)}` : said(problem);
  return new SdkError(code, message, details);
}

function said({ code, detail, errors }: ServiceProblem): string {
  const [first] = errors ?? [];
  const where = first === undefined ? '' : ` (${first.pointer || '/'}: ${first.detail})`;
  return `${code}: ${detail}${where}`;
}

/** The problem document of an answer; none when it is not one, or speaks of another status. */
function problemOf({ status, headers, bytes }: Answer): ServiceProblem | undefined {
  const type = headers.get('content-type') ?? '';
  if (!/^application\/problem\+json(?:\s*;|\s*$)/i.test(type)) return undefined;
  try {
    const document = openSchema(publicProblemSchema).parse(parseStrict(bytes));
    return document.status === status ? document : undefined;
  } catch {
    return undefined;
  }
}
