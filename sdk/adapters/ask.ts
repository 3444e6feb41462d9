import { ProtocolError } from '../../protocol/errors.js';
import { admitHttp } from '../engine/admit.js';
import { SdkError } from '../errors.js';
import { actionOf } from './action.js';
import { NotAdmittedError } from './not-admitted.js';
import type { Admission, GateOptions } from './options.js';
import { plainHash } from './plain-json.js';

/** What a tool is about to do. */
export interface Intended {
  tool: string;
  action: string;
  /** SHA-256 of the arguments' RFC 8785 form. They themselves stay here. */
  argumentsHash: string;
}

interface Named {
  tool: string;
  /** The caller's own choice. */
  action: ((tool: string) => string) | undefined;
  args: () => unknown;
}

/** Takes the hash of the arguments; throws `NotAdmittedError` for a call that cannot be asked for. */
export function intended({ tool, action: chosen = actionOf, args }: Named): Intended {
  try {
    const action = chosen(tool);
    return { tool, action, argumentsHash: plainHash(args()) };
  } catch (cause) {
    const why =
      cause instanceof ProtocolError
        ? `${cause.pointer ?? ''}: ${cause.message}`
        : messageOf(cause);
    throw new NotAdmittedError('invalid_call', String(tool), `its call has no proof: ${why}`, {
      cause,
    });
  }
}

/** The engine's yes; everything else is thrown as `NotAdmittedError`. */
export async function ask(
  options: GateOptions,
  { tool, action, argumentsHash }: Intended,
  signal: AbortSignal | undefined,
): Promise<Admission> {
  const { engine, agent, parentProofId } = options;
  try {
    const either = signalOf(engine.signal, signal);
    const receipt = await admitHttp(
      { ...engine, ...(either !== undefined && { signal: either }) },
      {
        kind: 'admission',
        agent,
        action,
        tool,
        arguments_hash: argumentsHash,
        ...(parentProofId !== undefined && { parent_proof_id: parentProofId }),
      },
    );
    return { tool, action, proofId: receipt.registry_proof_id, receipt };
  } catch (cause) {
    throw notAdmitted({ tool, action }, cause);
  }
}

function signalOf(own?: AbortSignal, call?: AbortSignal): AbortSignal | undefined {
  return own === undefined || call === undefined ? (own ?? call) : AbortSignal.any([own, call]);
}

function messageOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : 'it cannot be named and hashed';
}

function notAdmitted({ tool, action }: { tool: string; action: string }, cause: unknown) {
  if (!(cause instanceof SdkError)) {
    const why = 'its admission failed';
    return new NotAdmittedError('undecided', tool, why, { action, cause });
  }
  const { code, message, denial } = cause;
  const proofId = denial?.receipt.registry_proof_id ?? cause.proofId;
  const details = { action, cause, ...(proofId !== undefined && { proofId }) };
  if (denial !== undefined) {
    const why = `denied by policy: ${message}`;
    return new NotAdmittedError('denied', tool, why, { ...details, denial });
  }
  if (code === 'aborted') return new NotAdmittedError('aborted', tool, 'aborted', details);
  if (code === 'invalid_input') {
    const why = `its call has no proof: ${message}`;
    return new NotAdmittedError('invalid_call', tool, why, details);
  }
  const why = `no admission was obtained: ${message}`;
  return new NotAdmittedError('undecided', tool, why, details);
}
