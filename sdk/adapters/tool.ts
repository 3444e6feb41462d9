import { actionOf as actionIn } from '../../protocol/actions.js';
import { textSchema } from '../../protocol/schemas/primitives.js';
import { SdkError, type SdkErrorCode } from '../errors.js';
import { invalidInput } from '../options.js';

/**
 * The action of a tool, as policies name it: `deleteAuditLog`, `delete-audit-log` and
 * `Delete audit log` are all `DELETE_AUDIT_LOG`. The envelope's `tool` keeps the original name.
 *
 * Throws `invalid_input` for a name without a letter A–Z or a digit, such as one in another script.
 */
export function actionOf(tool: string): string {
  const action = actionIn(tool);
  if (action === null) {
    throw invalidInput('/action', "no action can be derived from the tool's name: set `action`");
  }
  return action;
}

/** The id that the model gave to a call; undefined if no envelope can hold the id: some providers send an empty id. */
export const callIdOf = (id: string | undefined): string | undefined =>
  textSchema.safeParse(id).data;

/** A copy of an object, of the same class, with one member replaced. */
export function copyWith<T extends object>(object: T, name: string, value: unknown): T {
  const copy = Object.create(
    Object.getPrototypeOf(object) as object | null,
    Object.getOwnPropertyDescriptors(object),
  ) as T;
  const property = { value, configurable: true, enumerable: true, writable: true };
  return Object.defineProperty(copy, name, property);
}

/** Prefixes of messages, by code. */
const REASONS: Partial<Record<SdkErrorCode, string>> = {
  aborted: '',
  approval_required: '',
  arguments_changed: '',
  policy_denied: 'denied by policy: ',
};

/**
 * The error of a call that did not run, with the details of its reason.
 *
 * @param prefix for codes not in `REASONS`
 */
export function notAdmitted(
  thrown: unknown,
  call: { tool: string; action?: string; proofId?: string },
  prefix = 'not admitted: ',
): SdkError {
  const error = thrown instanceof SdkError ? thrown : foreign(thrown);
  const details = { ...error, ...call, cause: error.cause };
  const { code, proofId } = details;
  const reason = `${REASONS[code] ?? prefix}${error.message}`;
  const proof = proofId === undefined ? '' : ` (proof ${proofId})`;
  return new SdkError(code, `${call.tool} did not run: ${reason}${proof}`, details);
}

/** Wraps an error that a function of the options threw, such as `describe` or `action`. */
const foreign = (cause: unknown): SdkError =>
  new SdkError('invalid_input', cause instanceof Error ? cause.message : String(cause), { cause });
