import { SdkError } from '../errors.js';

const ACTION_MAX = 128;

/**
 * The action of a tool, as policies name it: upper case, with words separated by `_`. A change of case
 * separates words, accents are dropped, `.` and `:` stay, and every other character becomes one `_`.
 * Cut at 128 characters. So `deleteAuditLog`, `delete-audit-log` and `Delete audit log` are all
 * `DELETE_AUDIT_LOG`, and the same policy applies to each spelling. The envelope's `tool` keeps the
 * original name.
 *
 * Throws `invalid_input` for a name without a letter A–Z or a digit, such as one in another script.
 */
export function actionOf(tool: string): string {
  const name = tool.normalize('NFKD').replace(/\p{M}+/gu, '');
  // Separates words by case, except in a name that is all upper case.
  const separated = /[a-z]/.test(name)
    ? name.replace(/([a-z0-9])([A-Z])/g, '$1_$2').replace(/([A-Z])([A-Z][a-z])/g, '$1_$2')
    : name;
  const action = separated
    .toUpperCase()
    .replace(/[^A-Z0-9.:]+/g, '_')
    .slice(0, ACTION_MAX)
    .replace(/^_+|_+$/g, '');
  if (!/[A-Z0-9]/.test(action)) {
    throw new SdkError('invalid_input', 'the name of the tool gives no action: set one', {
      pointer: '/action',
    });
  }
  return action;
}

/** A copy of an object, of the same class, with one member replaced. */
export function copyWith<T extends object>(object: T, name: string, value: unknown): T {
  const copy = Object.create(
    Object.getPrototypeOf(object) as object | null,
    Object.getOwnPropertyDescriptors(object),
  ) as T;
  const property = { value, configurable: true, enumerable: true, writable: true };
  return Object.defineProperty(copy, name, property);
}
