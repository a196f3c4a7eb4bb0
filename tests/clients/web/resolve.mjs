// Lets the examples import the packages that are installed here, as examples/ has none.
import { register } from "node:module";

register(`data:text/javascript,${encodeURIComponent(`
export async function resolve(name, context, next) {
  const isPackage = !name.startsWith(".") && !name.includes(":");
  return next(name, isPackage ? { ...context, parentURL: ${JSON.stringify(import.meta.url)} } : context);
}`)}`);
