/** What was to be changed does not exist, or may not be changed like this. */
export class AdministrationError extends Error {
  override readonly name = 'AdministrationError';
  readonly forOperator = true;
}

export function noTenant(tenantId: string): AdministrationError {
  return new AdministrationError(`there is no tenant ${tenantId}: tenant list shows them all`);
}
