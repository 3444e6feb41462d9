import { SdkError } from '../errors.js';
import { backoffMs } from '../http/backoff.js';
import { withDeadline } from '../http/deadline.js';
import type { PublicOptions } from '../options.js';
import { lookUp, type Lookup } from './lookup.js';
import { openRegistry } from './registry.js';

const REST = { baseDelayMs: 200, maxDelayMs: 3_000 };

/**
 * Asks for the public verdict on a proof until there is one, less and less often: VALID, REVOKED or
 * EXPIRED, whichever it is. A proof appears in public a few seconds after its admission, when it has
 * been verified and published.
 *
 * Throws `timeout` when there is none in the time of the options: it may still come. A registry that
 * is away meanwhile is asked again.
 */
export async function waitForVerdictHttp(
  options: PublicOptions,
  { proof_id: identifier }: { proof_id: string },
): Promise<Lookup> {
  const registry = openRegistry(options);
  return withDeadline(options, async (deadline) => {
    let last: Lookup | SdkError | null = null;
    for (let asked = 1; ; asked++) {
      const input = { kind: 'proof', identifier } as const;
      const found: Lookup | SdkError = await lookUp(registry, input, deadline).catch(
        (error: unknown) => {
          if (!(error instanceof SdkError)) throw error;
          if (error.retryable && !deadline.signal.aborted) return error;
          // Time that is up in the middle of a question says nothing; the answer before it does.
          throw error.code === 'timeout' && last !== null ? noVerdict(last) : error;
        },
      );
      if (!(found instanceof SdkError) && !isOpen(found)) return found;
      last = found;
      const rest = backoffMs(asked, REST, Math.random());
      if (rest >= deadline.remainingMs()) throw noVerdict(found);
      await deadline.sleep(rest);
    }
  });
}

/** Not published yet, or not verified yet. */
function isOpen({ verification_status: status }: Lookup): boolean {
  return status === 'NOT_FOUND' || status === 'BACKEND_LOOKUP_REQUIRED';
}

function noVerdict(last: Lookup | SdkError): SdkError {
  if (last instanceof SdkError) {
    return new SdkError('timeout', `no verdict in time: ${last.message}`, { cause: last });
  }
  return new SdkError('timeout', `no verdict in time: ${last.verification_status} until now`);
}
