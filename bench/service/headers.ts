/** What every call of the engine carries. */
export function engineHeaders(apiKey: string, tenantId: string): Record<string, string> {
  return { 'X-Svc-Api-Key': apiKey, 'X-Svc-Tenant-Id': tenantId, 'svc-api-version': 'v1' };
}
