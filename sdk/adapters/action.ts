import { SdkError } from '../errors.js';

const ACTION_MAX = 128;

/**
 * The action that a tool stands for, as policies name it: upper case, words parted by `_`. Case
 * changes part words, accents are dropped, `.` and `:` stay, and whatever else is not a letter or a
 * digit becomes one `_`; what is longer than 128 characters is cut. So `deleteAuditLog`,
 * `delete-audit-log` and `Delete audit log` are all `DELETE_AUDIT_LOG`, and meet the policy for it
 * however they are spelled. Names that become one action stay apart by the envelope's `tool`.
 *
 * Throws `invalid_input` for a name that leaves nothing, as one in another script does.
 */
export function actionOf(tool: string): string {
  const name = tool.normalize('NFKD').replace(/\p{M}+/gu, '');
  const action = (/[a-z]/.test(name) ? parted(name) : name)
    .toUpperCase()
    .replace(/[^A-Z0-9.:]+/g, '_')
    .slice(0, ACTION_MAX)
    .replace(/^_+|_+$/g, '');
  if (!/[A-Z0-9]/.test(action)) {
    throw new SdkError('invalid_input', 'the name of the tool makes no action: give one', {
      pointer: '/action',
    });
  }
  return action;
}

/** `readURLNow` is `read_URL_Now`. A name all in upper case says nothing by its case. */
function parted(name: string): string {
  return name.replace(/([a-z0-9])([A-Z])/g, '$1_$2').replace(/([A-Z])([A-Z][a-z])/g, '$1_$2');
}
