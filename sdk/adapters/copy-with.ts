/** A copy of an object, of its class and with its members, one of which is another. */
export function copyWith<T extends object>(object: T, name: string, value: unknown): T {
  const copy = Object.create(
    Object.getPrototypeOf(object) as object | null,
    Object.getOwnPropertyDescriptors(object),
  ) as T;
  return Object.defineProperty(copy, name, {
    value,
    configurable: true,
    enumerable: true,
    writable: true,
  });
}
