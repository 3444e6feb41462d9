import { SdkError } from '../errors.js';
import { backoffMs } from '../http/client.js';
import { withDeadline } from '../http/attempt.js';
import type { PublicOptions } from '../options.js';
import { lookUp, type Lookup, openRegistry } from './lookup.js';

const POLL = { baseDelayMs: 200, maxDelayMs: 3_000 };
const UNDECIDED = ['NOT_FOUND', 'BACKEND_LOOKUP_REQUIRED'];

/**
 * Polls at growing intervals for the public verdict on a proof: VALID, REVOKED or EXPIRED. A proof
 * appears a few seconds after its admission, once it is verified and published.
 *
 * Throws `timeout` without a verdict; a later call may return one. Keeps polling while the registry
 * is unavailable, and while the witnesses of a pinned policy have not cosigned the newest checkpoint.
 */
export async function waitForVerdictHttp(
  options: PublicOptions,
  { proof_id: identifier }: { proof_id: string },
): Promise<Lookup> {
  const registry = openRegistry(options);
  return withDeadline(options, async (deadline) => {
    let last: Lookup | SdkError | null = null;
    for (let sent = 1; ; sent++) {
      const input = { kind: 'proof', identifier } as const;
      const found: Lookup | SdkError = await lookUp(registry, input, deadline).catch(
        (error: unknown) => {
          if (!(error instanceof SdkError)) throw error;
          if (isTransient(error) && !deadline.signal.aborted) return error;
          // Reports the previous response, because a timeout within a request carries no information.
          throw error.code === 'timeout' && last !== null ? timeoutAfter(last) : error;
        },
      );
      if ('record' in found && !UNDECIDED.includes(found.verification_status)) return found;
      last = found;
      const pause = backoffMs(sent, POLL, Math.random());
      if (pause >= deadline.remainingMs()) throw timeoutAfter(found);
      await deadline.sleep(pause);
    }
  });
}

const isTransient = ({ fault, retryable }: SdkError): boolean =>
  retryable || fault === 'quorum_not_met';

function timeoutAfter(last: Lookup | SdkError): SdkError {
  if (last instanceof SdkError) {
    return new SdkError('timeout', `no verdict in time: ${last.message}`, { cause: last });
  }
  return new SdkError('timeout', `no verdict in time: last status ${last.verification_status}`);
}
