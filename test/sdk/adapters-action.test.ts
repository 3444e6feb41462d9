import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { actionSchema } from '#protocol/schemas/primitives';
import { actionOf } from '#sdk/adapters/index';
import { SdkError } from '#sdk/index';

describe('actionOf', () => {
  const spelled: [string, string][] = [
    ['delete_audit_log', 'DELETE_AUDIT_LOG'],
    ['deleteAuditLog', 'DELETE_AUDIT_LOG'],
    ['delete-audit-log', 'DELETE_AUDIT_LOG'],
    ['Delete audit log!', 'DELETE_AUDIT_LOG'],
    ['delete/audit//log', 'DELETE_AUDIT_LOG'],
    ['__delete__audit__log__', 'DELETE_AUDIT_LOG'],
    ['reservations.create', 'RESERVATIONS.CREATE'],
    ['ns:readURLNow', 'NS:READ_URL_NOW'],
    ['HTTPServer2', 'HTTP_SERVER2'],
    ['v2Search', 'V2_SEARCH'],
    ['Prüfe Größe', 'PRUFE_GROSSE'],
    ['ｆｕｌｌ', 'FULL'],
  ];
  it.each(spelled)('converts the tool name %s to the action %s', (tool, action) => {
    expect(actionOf(tool)).toBe(action);
  });

  it('returns a valid and deterministic action for every name', () => {
    fc.assert(
      fc.property(
        fc.oneof(fc.string({ unit: 'binary' }), fc.string({ maxLength: 300 })),
        (tool) => {
          let action: string;
          try {
            action = actionOf(tool);
          } catch (error) {
            expect(error).toBeInstanceOf(SdkError);
            return;
          }
          expect(actionSchema.safeParse(action).success).toBe(true);
          expect(actionOf(tool)).toBe(action);
          expect(actionOf(action)).toBe(action);
        },
      ),
      { numRuns: 2_000 },
    );
    expect(actionOf('a'.repeat(500))).toBe('A'.repeat(128));
  });

  it('throws for a name without Latin letters and digits', () => {
    for (const tool of ['', '___', '...', '検索', '🍕']) {
      expect(() => actionOf(tool)).toThrow(expect.objectContaining({ code: 'invalid_input' }));
    }
  });
});
